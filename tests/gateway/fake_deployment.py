"""A router, a prefill and a decode worker behind the gateway's mailbox: they speak the protocol
and answer a script instead of a model."""

import asyncio
import math
from collections.abc import Callable, Iterable

from core.cost_model import CostModel
from core.ids import Attempt, Incarnation, ProcessId, WorkerName
from core.kv_layout import KvLayout
from core.request import FinishReason, Request, SampledToken, TokenLogprobs
from wire.channel import PeerGone, Received
from wire.messages import (
    Assignment,
    AttemptFailed,
    Cancel,
    Fault,
    HandoffReport,
    Members,
    MemberState,
    MemberView,
    Message,
    Peer,
    PrefillReport,
    Progress,
    Refusal,
    RefusalKind,
    Role,
    Route,
    RoutePath,
    Settled,
    Stage,
    Submit,
    Subscribe,
    TokenItem,
    Tokens,
    WorkerCard,
    WorkerLoad,
    WorkerLost,
)

EOS = 258  # <|im_end|> of the synthetic tokenizer
ROUTER_ADDRESS = "fake://router"
LAYOUT = KvLayout(layers=2, kv_heads=1, head_dim=8, block_tokens=16, dtype="float32")


def make_peer(name: str, incarnation: int = 1) -> Peer:
    process = ProcessId(WorkerName(name), Incarnation(incarnation))
    return Peer(process, f"fake://{name}/{incarnation}")


ROUTER = make_peer("router")
P, D = make_peer("prefill-0"), make_peer("decode-0")


def view(
    peer: Peer, role: Role, state: MemberState = MemberState.ALIVE, load: WorkerLoad | None = None
) -> MemberView:
    card = WorkerCard(
        peer=peer,
        pool=str(role),
        roles=(role,),
        model="fake",
        fingerprint="f" * 32,
        max_context=512,
        layout=LAYOUT,
        blocks_total=100,
        transport="memory",
        cost=CostModel(),
    )
    return MemberView(card, load or WorkerLoad(blocks_free=90, blocks_owned=10), state)


class FakeDeployment:
    """Set the attributes to script it; read the lists to see what the gateway did."""

    def __init__(self) -> None:
        self.script: Callable[[Request], list[int]] = lambda request: text_tokens("Hello, world.")
        """Tokens of choice 0 (others get the same); EOS and max_tokens are seen to here."""
        self.members: tuple[MemberView, ...] = ()
        self._decode, self._prefill = D, P
        self.place(decode=D, prefill=P)
        self.refusal: tuple[RefusalKind, str, float] | None = None
        self.silent_router = False
        self.hold_at: int | None = None
        """Position before which D stops until `go_on` is set."""
        self.go_on = asyncio.Event()
        self.fail_at: tuple[int, Fault] | None = None
        """Position at which D gives the first attempt up."""
        self.lose_at: int | None = None
        """Position at which D dies on the first attempt."""
        self.hand_over = True
        """Whether D says that KV came."""
        self.routes: list[Route] = []
        self.submits: list[Submit] = []
        self.cancels: list[tuple[str, Cancel]] = []
        self.settled: list[Attempt] = []
        self.forgotten: list[str] = []
        self.news = asyncio.Event()
        """Set whenever the gateway says something."""
        self._incoming: asyncio.Queue[Received | PeerGone] = asyncio.Queue()
        self._running: dict[Attempt, asyncio.Task[None]] = {}

    def place(self, *, decode: Peer, prefill: Peer) -> None:
        """Where the workers listen."""
        self._decode, self._prefill = decode, prefill
        self.members = (view(prefill, Role.PREFILL), view(decode, Role.DECODE))

    # ---- the mailbox ----------------------------------------------------------------------------

    def send(self, address: str, message: Message) -> None:
        match message:
            case Subscribe():
                self.say(ROUTER, Members(self.members))
            case Route():
                self.routes.append(message)
                self._route(message)
            case Settled(attempt):
                self.settled.append(attempt)
            case Submit():
                assert address == self._decode.address
                self.submits.append(message)
                task = asyncio.get_running_loop().create_task(self._serve(message))
                self._running[message.request.attempt] = task
            case Cancel(attempt):
                self.cancels.append((address, message))
                if address == self._decode.address and attempt in self._running:
                    self._running.pop(attempt).cancel()
            case _:
                raise AssertionError(f"the gateway sent {message} to {address}")
        self.news.set()

    async def receive(self) -> Received | PeerGone:
        return await self._incoming.get()

    def forget(self, address: str) -> None:
        self.forgotten.append(address)

    # ---- for tests ------------------------------------------------------------------------------

    def say(self, sender: Peer, message: Message) -> None:
        self._incoming.put_nowait(Received(sender.process, message))

    def lose_connection(self, address: str) -> None:
        self._incoming.put_nowait(PeerGone(address))

    def change_members(self, *members: MemberView) -> None:
        self.members = members
        self.say(ROUTER, Members(members))

    async def until(self, condition: Callable[[], object]) -> None:
        """Wait until the gateway has said what makes `condition` true."""
        async with asyncio.timeout(10):
            while not condition():
                self.news.clear()
                await self.news.wait()

    @property
    def open_attempts(self) -> int:
        return sum(not task.done() for task in self._running.values())

    async def close(self) -> None:
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # ---- router ---------------------------------------------------------------------------------

    def _route(self, route: Route) -> None:
        if self.silent_router:
            return
        if self.refusal is not None:
            kind, reason, retry_after_s = self.refusal
            refusal = Refusal(
                attempt=route.attempt, kind=kind, reason=reason, retry_after_s=retry_after_s
            )
            self.say(ROUTER, refusal)
            return
        local = route.path is RoutePath.LOCAL or (
            route.path is RoutePath.ANY and route.prompt_tokens < 8
        )
        assignment = Assignment(
            attempt=route.attempt,
            decode=self._decode,
            prefill=None if local else self._prefill,
            predicted_ttft_ms=1.0,
            predicted_tpot_ms=1.0,
        )
        self.say(ROUTER, assignment)

    # ---- workers --------------------------------------------------------------------------------

    async def _serve(self, submit: Submit) -> None:
        """Both workers: P's token 0, then D's, one a turn of the loop."""
        request, prefiller = submit.request, submit.prefill or D
        attempt = request.attempt
        self.say(D, Progress(attempt, Stage.RESERVED))
        self.say(D, Progress(attempt, Stage.PREFILLING))
        report = PrefillReport(attempt=attempt, queue_ms=1.5, prefill_ms=12.25, cached_tokens=4)
        self.say(prefiller, report)
        tokens = self.script(request)
        begun = len(request.generated[0] or ()) if request.generated else 0
        for position in range(begun, request.sampling.max_tokens):
            await asyncio.sleep(0)
            if attempt.epoch == 1 and self._breaks(attempt, position):
                return
            if position == self.hold_at:
                await self.go_on.wait()
            if position == begun + 1:
                self._begin_decode(submit)
            sampled = self._sample(request, tokens, position)
            sender = prefiller if position == begun else D
            self.say(sender, Tokens(tuple(TokenItem(attempt, each) for each in sampled)))
            if sampled[0].finish is not None:
                break
        self._running.pop(attempt, None)

    def _begin_decode(self, submit: Submit) -> None:
        attempt = submit.request.attempt
        self.say(D, Progress(attempt, Stage.DECODING))
        if submit.prefill is not None and self.hand_over:
            report = HandoffReport(
                attempt=attempt, handoff_ms=3.0, transfer_bytes=4096, transport="memory"
            )
            self.say(D, report)

    def _breaks(self, attempt: Attempt, position: int) -> bool:
        if self.fail_at is not None and position == self.fail_at[0]:
            self.say(D, AttemptFailed(attempt, self.fail_at[1], "no good"))
            return True
        if position == self.lose_at:
            self.say(ROUTER, WorkerLost(D.process, proven=True))
            return True
        return False

    def _sample(self, request: Request, tokens: list[int], position: int) -> list[SampledToken]:
        sampling = request.sampling
        token = tokens[position] if position < len(tokens) else EOS
        finish = FinishReason.STOP if token == EOS and not sampling.ignore_eos else None
        if finish is None and position + 1 == sampling.max_tokens:
            finish = FinishReason.LENGTH
        logprobs = None
        if sampling.logprobs is not None:
            top = ((token, -0.25), (EOS, -1.5), (0, -math.inf))[: sampling.logprobs]
            logprobs = TokenLogprobs(-0.25, top)
        return [
            SampledToken(choice, position, token, finish, logprobs)
            for choice in range(sampling.choices)
        ]


def text_tokens(text: str) -> list[int]:
    """The synthetic tokenizer's ids are the bytes."""
    return list(text.encode())


def token_text(tokens: Iterable[int]) -> str:
    return bytes(token for token in tokens if token < 256).decode()
