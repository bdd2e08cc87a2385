"""The edge of all sessions: their channel, their clock, and who is told what they say."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

from core.clock import Clock
from core.errors import BatonError, BugError, CapacityError
from core.ids import ProcessId, RequestId
from core.request_lifecycle import RequestState
from engine.detokenizer import IncrementalDetokenizer
from engine.tokenizer import Tokenizer
from gateway.generation import Generation
from gateway.membership_view import MembershipView
from gateway.metrics import GatewayMetrics
from gateway.request_session import RequestSession
from gateway.session_actions import (
    AttemptLost,
    Cancelled,
    Failed,
    Finished,
    Ignored,
    Output,
    SessionAction,
    ToRouter,
    ToWorker,
)
from gateway.session_events import (
    Begin,
    Broken,
    ClientGone,
    Heard,
    PeerUnreachable,
    RouterUnreachable,
    SessionEvent,
    Tick,
    WorkerGone,
)
from wire.channel import PeerGone, Received
from wire.messages import (
    HandoffReport,
    Members,
    MemberView,
    Message,
    Peer,
    Subscribe,
    TokenItem,
    Tokens,
    WorkerLost,
)

TICK_S = 0.05
SUBSCRIBE_EVERY_S = 1.0

_log = logging.getLogger(__name__)


class Mailbox(Protocol):
    """What of `wire.channel.Channel` is used here."""

    def send(self, address: str, message: Message) -> None: ...

    async def receive(self) -> Received | PeerGone: ...

    def forget(self, address: str) -> None: ...


Sink = Callable[[Output], None]
"""Takes what concerns the client, at once and without blocking."""


@dataclass(slots=True)
class _Open:
    session: RequestSession
    sink: Sink
    counted: bool


class Dispatcher:
    """Holds every open session by its request's id.

    Everything happens on one loop; `run` must be running for anything to come back.
    """

    def __init__(
        self,
        *,
        channel: Mailbox,
        gateway: Peer,
        router_address: str,
        tokenizer: Tokenizer,
        max_attempts: int,
        clock: Clock,
        metrics: GatewayMetrics,
    ) -> None:
        self._channel = channel
        self._gateway = gateway
        self._router_address = router_address
        self._tokenizer = tokenizer
        self._max_attempts = max_attempts
        self._clock = clock
        self._metrics = metrics
        self._open: dict[RequestId, _Open] = {}
        self._closing = False
        self.membership = MembershipView()
        metrics.watch(self)

    # ---- for the handlers -----------------------------------------------------------------------

    def open(self, generation: Generation, sink: Sink) -> RequestSession:
        """Start a session; its outputs go to `sink`, the last of them an end.

        Raises:
            CapacityError: the gateway is shutting down.
        """
        if self._closing:
            raise CapacityError("the server is shutting down")
        if generation.request in self._open:
            raise BugError(f"{generation.request} is open already")
        now_s = self._clock.now_s()
        session = RequestSession(
            generation,
            self._gateway,
            lambda: IncrementalDetokenizer(
                self._tokenizer.table, keep_leading_space=generation.continues_prompt
            ),
            self._max_attempts,
            now_s,
        )
        opened = _Open(session, sink, counted=not generation.warm_up)
        self._open[generation.request] = opened
        self._tell(generation.request, Begin())
        return session

    def abandon(self, request: RequestId) -> None:
        """The client is gone; no harm if the request has ended."""
        self._tell(request, ClientGone())

    def close(self) -> None:
        """End every request with its reason and take no more."""
        self._closing = True
        self._tell_all(Broken(CapacityError("the server is shutting down")))

    def states(self) -> Iterable[RequestState]:
        return [opened.session.state for opened in self._open.values() if opened.counted]

    def members(self) -> Sequence[MemberView]:
        return self.membership.members

    def now_s(self) -> float:
        return self._clock.now_s()

    # ---- what comes in --------------------------------------------------------------------------

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._receive_always())
            tasks.create_task(self._tick_always())
            tasks.create_task(self._subscribe_always())

    async def _receive_always(self) -> None:
        while True:
            incoming = await self._channel.receive()
            if isinstance(incoming, PeerGone):
                self._peer_gone(incoming.address)
            else:
                self._received(incoming.sender, incoming.message)

    async def _tick_always(self) -> None:
        while True:
            await asyncio.sleep(TICK_S)
            now_s = self._clock.now_s()
            due = [r for r, opened in self._open.items() if opened.session.wake_s <= now_s]
            for request in due:
                self._tell(request, Tick())

    async def _subscribe_always(self) -> None:
        while True:
            self._channel.send(self._router_address, Subscribe(self._gateway))
            await asyncio.sleep(SUBSCRIBE_EVERY_S)

    def _peer_gone(self, address: str) -> None:
        if address == self._router_address:
            self._tell_all(RouterUnreachable())
        else:
            self._tell_all(PeerUnreachable(address))

    def _received(self, sender: ProcessId, message: Message) -> None:
        match message:
            case Tokens(items):
                by_request: defaultdict[RequestId, list[TokenItem]] = defaultdict(list)
                for item in items:
                    by_request[item.attempt.request].append(item)
                for request, own in by_request.items():
                    self._tell(request, Heard(sender, Tokens(tuple(own))))
            case Members(members):
                for process, proven in self.membership.update(members, self._clock.now_s()):
                    self._worker_lost(process, proven)
            case WorkerLost(process, proven):
                self._worker_lost(process, proven)
            case _:
                if isinstance(message, HandoffReport):
                    self._metrics.handed_over(message)
                attempt = getattr(message, "attempt", None)
                if attempt is None:
                    _log.warning("%s sent a %s, not for us", sender, type(message).__name__)
                else:
                    self._tell(attempt.request, Heard(sender, message))

    def _worker_lost(self, process: ProcessId, proven: bool) -> None:
        self._tell_all(WorkerGone(process, proven))
        address = self.membership.address_of(process)
        if proven and address is not None:
            self._channel.forget(address)

    # ---- sessions -------------------------------------------------------------------------------

    def _tell_all(self, event: SessionEvent) -> None:
        for request in list(self._open):
            self._tell(request, event)

    def _tell(self, request: RequestId, event: SessionEvent) -> None:
        opened = self._open.get(request)
        if opened is None:
            if isinstance(event, Heard):
                self._metrics.ignored()
            return
        try:
            self._carry_out(request, opened, opened.session.handle(event, self._clock.now_s()))
        except BatonError as error:
            self._break(request, opened, error)
        except Exception as error:  # noqa: BLE001  # outermost: one request's bug ends that request
            self._break(request, opened, BugError(f"{type(error).__name__}: {error}"), error)

    def _break(
        self,
        request: RequestId,
        opened: _Open,
        error: BatonError,
        cause: BaseException | None = None,
    ) -> None:
        story = opened.session.story
        _log.error(
            "%s is broken: %s; its story: %s", request, error, story, exc_info=cause or error
        )
        if opened.session.ended:
            self._end(request, opened, Failed(error))
        else:
            self._carry_out(
                request, opened, opened.session.handle(Broken(error), self._clock.now_s())
            )

    def _carry_out(
        self, request: RequestId, opened: _Open, actions: Iterable[SessionAction]
    ) -> None:
        for action in actions:
            match action:
                case ToRouter(message):
                    self._channel.send(self._router_address, message)
                case ToWorker(peer, message):
                    self._channel.send(peer.address, message)
                case AttemptLost(attempt, why):
                    _log.warning("%s is lost and tried again: %s", attempt, why)
                    self._metrics.attempt_lost()
                case Ignored(what):
                    _log.debug("%s: %s ignored", request, what)
                    self._metrics.ignored()
                case Finished() | Failed() | Cancelled():
                    self._end(request, opened, action)
                case _:
                    opened.sink(action)

    def _end(self, request: RequestId, opened: _Open, end: Finished | Failed | Cancelled) -> None:
        if self._open.pop(request, None) is None:
            return
        session = opened.session
        if opened.counted:
            self._metrics.request_ended(session.state, session.record)
            _log.info("%s %s", request, session.state, extra=session.record.log_fields())
        if isinstance(end, Failed):
            ours = end.error.http_status >= 500 and opened.counted
            level = logging.WARNING if ours else logging.INFO
            _log.log(level, "%s failed: %s; %s", request, end.error, session.story)
        opened.sink(end)
