"""One attempt on a decode worker."""

from dataclasses import replace

from core.attempt_lifecycle import DECODE_TABLE, DecodeAction, DecodeEvent, DecodeState
from core.ids import Attempt
from core.kv_layout import KvLayout
from core.lifecycle import Lifecycle
from core.request import Request
from kv_transfer.node_actions import SendTo
from kv_transfer.receive_session import ReceiveSession
from wire.messages import (
    Fault,
    HandoffReport,
    KvTarget,
    Message,
    Peer,
    Prefill,
    PrefillReport,
    Submit,
)


class DecodeJob:
    """What the decode role knows of an attempt; the role alone changes it.

    `session` is there from the moment P may write until the KV is delivered or, where the attempt
    was given up, until no write can come any more. `in_engine`: the scheduler still holds blocks
    or work for it that nobody has asked it to drop.
    """

    def __init__(self, order: Submit, now_s: float) -> None:
        self.order = order
        self.life: Lifecycle[DecodeState, DecodeEvent, DecodeAction] = Lifecycle(
            DECODE_TABLE, str(order.request.attempt)
        )
        self.session: ReceiveSession | None = None
        self.in_engine = True
        self.prefilled_here = order.prefill is None
        self.reported = False
        """Whether the gateway has the PrefillReport of a prefill here."""
        self.fault = Fault.US
        self.received_s = now_s
        self.deadline_s = now_s + order.request.deadline_left_ms / 1e3
        self.started_s = now_s
        """When a prefill here began."""
        self.done_s = now_s
        """When KvDone came."""
        self.elapsed_on_prefill_ms = 0.0
        """Last prefill chunk computed → KvDone sent, by P's clock."""

    @property
    def attempt(self) -> Attempt:
        return self.order.request.attempt

    @property
    def gateway(self) -> Peer:
        return self.order.gateway

    @property
    def prefill(self) -> Peer | None:
        return self.order.prefill

    @property
    def prompt_tokens(self) -> int:
        """Tokens whose KV the prefill computes: the prompt and what earlier attempts generated."""
        generated = self.order.request.generated
        return len(self.order.request.prompt) + len((generated and generated[0]) or ())

    def request_now(self, now_s: float) -> Request:
        """The request with the time that is left of its deadline."""
        left_ms = max(1.0, (self.deadline_s - now_s) * 1e3)
        return replace(self.order.request, deadline_left_ms=left_ms)

    def open_transfer(
        self, blocks: tuple[int, ...], algorithm: str, lease_ms: float, now_s: float
    ) -> None:
        """To be called in the moment that Prefill is sent: from then on P may write."""
        self.session = ReceiveSession(
            attempt=self.attempt,
            blocks=blocks,
            algorithm=algorithm,
            lease_s=lease_ms / 1e3,
            now_s=now_s,
        )

    def prefill_order(self, me: Peer, target: KvTarget, lease_ms: float, now_s: float) -> Prefill:
        """What P is asked for."""
        return Prefill(
            request=self.request_now(now_s),
            gateway=self.gateway,
            decode=me,
            target=target,
            lease_ms=lease_ms,
        )

    def handoff_report(self, layout: KvLayout, transport: str, now_s: float) -> HandoffReport:
        """When the first decode step starts."""
        blocks = layout.blocks_for(self.prompt_tokens)
        return HandoffReport(
            attempt=self.attempt,
            handoff_ms=self.elapsed_on_prefill_ms + (now_s - self.done_s) * 1e3,
            transfer_bytes=blocks * layout.block_bytes,
            transport=transport,
        )

    def to_gateway(self, message: Message) -> SendTo:
        return SendTo(self.gateway.address, message)

    def prefill_report(self, now_s: float) -> PrefillReport:
        """Of a prefill here whose first token is just out."""
        return PrefillReport(
            attempt=self.attempt,
            queue_ms=(self.started_s - self.received_s) * 1e3,
            prefill_ms=(now_s - self.started_s) * 1e3,
            cached_tokens=0,
        )
