"""How busy each worker is: its last heartbeat, and what was assigned since.

A burst between two heartbeats would all go to one worker if only heartbeats counted. So what the
router assigns counts at once, until a heartbeat that is sure to contain it has come or the
request is settled. What decode workers hold is also counted from assignment to settlement: those
requests will decode there even while their KV is still on its way and no heartbeat shows them.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from core.errors import IndexCorrupt
from core.ids import Attempt, ProcessId, RequestId
from wire.messages import WorkerCard, WorkerLoad

STAY_WEIGHT = 0.1
"""Weight of the newest stay in the running mean."""


@dataclass(slots=True)
class Share:
    """What one request adds to one worker, or the sum of many."""

    requests: int = 0
    prefill_tokens: int = 0
    sequences: int = 0
    context_tokens: int = 0
    blocks: int = 0

    def add(self, other: "Share", sign: int = 1) -> None:
        self.requests += sign * other.requests
        self.prefill_tokens += sign * other.prefill_tokens
        self.sequences += sign * other.sequences
        self.context_tokens += sign * other.context_tokens
        self.blocks += sign * other.blocks


class WorkerFigures:
    """One worker's load as far as the router knows. Counts of requests, tokens, sequences and
    KV blocks; read by the policy, changed by the LoadView only.

    Plain attributes, brought up to date by `refresh` at each change: a decision reads the figures
    of every worker and changes those of two.
    """

    __slots__ = (
        "blocks_free",
        "blocks_total",
        "blocks_usable",
        "context_tokens",
        "held",
        "load",
        "mean_stay_s",
        "queued_prefill_tokens",
        "queued_prefills",
        "sequences",
        "unseen",
        "unseen_shares",
    )

    def __init__(self, card: WorkerCard) -> None:
        self.blocks_total = card.blocks_total
        self.load = WorkerLoad(blocks_free=card.blocks_total)
        self.unseen = Share()
        """Sum of what the last heartbeat may lack."""
        self.unseen_shares: dict[Attempt, tuple[float, Share]] = {}
        """Its parts with the time of their assignment, oldest first."""
        self.held = Share()
        """Sum of what decodes here, or will, from assignment to settlement."""
        self.mean_stay_s: float | None = None
        """From assignment to settlement, a running mean; None before the first."""
        self.queued_prefill_tokens = 0
        self.queued_prefills = 0
        """Requests that `queued_prefill_tokens` belong to, at most."""
        self.sequences = 0
        """Of the decode batch, with those still on their way into it."""
        self.context_tokens = 0
        """Of those sequences."""
        self.blocks_usable = card.blocks_total
        """Without the quarantined ones, which time alone doesn't free."""
        self.blocks_free = card.blocks_total
        """Negative where more is promised than there is."""

    def refresh(self) -> None:
        load, unseen, held = self.load, self.unseen, self.held
        self.queued_prefill_tokens = load.prefill_tokens_queued + unseen.prefill_tokens
        self.queued_prefills = load.running + load.waiting + unseen.requests
        self.sequences = max(load.decode_batch + unseen.sequences, held.sequences)
        self.context_tokens = max(
            load.decode_context_tokens + unseen.context_tokens, held.context_tokens
        )
        self.blocks_usable = self.blocks_total - load.blocks_quarantined
        self.blocks_free = min(load.blocks_free - unseen.blocks, self.blocks_usable - held.blocks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """Where one attempt was sent and what it weighs there. `prefill` is None where `decode`
    prefills too. `blocks` are what the decode worker must have free to begin."""

    attempt: Attempt
    gateway: ProcessId
    decode: ProcessId
    prefill: ProcessId | None
    prompt_tokens: int
    choices: int
    blocks: int
    assigned_s: float
    expires_s: float
    """Its deadline: whoever should have settled it by then has failed to."""

    def decode_share(self) -> Share:
        return Share(
            requests=1,
            prefill_tokens=self.prompt_tokens if self.prefill is None else 0,
            sequences=self.choices,
            context_tokens=self.prompt_tokens * self.choices,
            blocks=self.blocks,
        )

    def prefill_share(self) -> Share:
        return Share(requests=1, prefill_tokens=self.prompt_tokens)


class LoadView:
    """Figures of every worker that may get work, and the placements they include.

    Invariants (`check_integrity`): each worker's `unseen` and `held` are the sums of their parts;
    one placement per request, and none on a worker that isn't here any more.

    Args:
        covered_after_s: a heartbeat contains everything assigned this long before it.
    """

    def __init__(self, covered_after_s: float) -> None:
        self._covered_after_s = covered_after_s
        self._workers: dict[ProcessId, WorkerFigures] = {}
        self._placed: dict[RequestId, Placement] = {}

    def __len__(self) -> int:
        """Placements not settled yet."""
        return len(self._placed)

    def add_worker(self, card: WorkerCard) -> None:
        """Begin (or, known already, go on) counting for a worker."""
        known = self._workers.get(card.peer.process)
        if known is None:
            self._workers[card.peer.process] = WorkerFigures(card)
        else:
            known.blocks_total = card.blocks_total
            known.refresh()

    def remove_worker(self, process: ProcessId) -> None:
        """Forget a lost worker, and the requests that were to decode there: their gateways ask
        anew. Those that it only prefilled stay where they decode."""
        if self._workers.pop(process, None) is None:
            return
        for placement in [p for p in self._placed.values() if p.decode == process]:
            self._drop(placement)

    def figures(self, process: ProcessId) -> WorkerFigures:
        return self._workers[process]

    def heartbeat(self, process: ProcessId, load: WorkerLoad, now_s: float) -> None:
        worker = self._workers.get(process)
        if worker is None:
            return
        worker.load = load
        covered_s = now_s - self._covered_after_s
        for attempt, (assigned_s, share) in list(worker.unseen_shares.items()):
            if assigned_s > covered_s:
                break
            del worker.unseen_shares[attempt]
            worker.unseen.add(share, -1)
        worker.refresh()

    def placement(self, request: RequestId) -> Placement | None:
        return self._placed.get(request)

    def place(self, placement: Placement) -> None:
        """Count an assignment. The request's older attempts must have been forgotten."""
        self._placed[placement.attempt.request] = placement
        decode = self._workers[placement.decode]
        share = placement.decode_share()
        decode.held.add(share)
        self._add_unseen(decode, placement, share)
        if placement.prefill is not None:
            prefill = self._workers[placement.prefill]
            self._add_unseen(prefill, placement, placement.prefill_share())

    def settle(self, attempt: Attempt, now_s: float) -> bool:
        """The attempt is over; False if it wasn't (or isn't any longer) known."""
        placement = self._placed.get(attempt.request)
        if placement is None or placement.attempt != attempt:
            return False
        worker = self._workers[placement.decode]
        stay_s = now_s - placement.assigned_s
        if worker.mean_stay_s is None:
            worker.mean_stay_s = stay_s
        else:
            worker.mean_stay_s += STAY_WEIGHT * (stay_s - worker.mean_stay_s)
        self._drop(placement)
        return True

    def forget(self, request: RequestId) -> None:
        """Stop counting a request, without learning from it."""
        placement = self._placed.get(request)
        if placement is not None:
            self._drop(placement)

    def forget_gateway(self, gateway: ProcessId) -> None:
        """The gateway is gone, and its requests with it."""
        for placement in [p for p in self._placed.values() if p.gateway == gateway]:
            self._drop(placement)

    def expire(self, now_s: float) -> int:
        """Forget what is past its deadline; how many there were."""
        expired = [p for p in self._placed.values() if p.expires_s <= now_s]
        for placement in expired:
            self._drop(placement)
        return len(expired)

    def _add_unseen(self, worker: WorkerFigures, placement: Placement, share: Share) -> None:
        worker.unseen_shares[placement.attempt] = (placement.assigned_s, share)
        worker.unseen.add(share)
        worker.refresh()

    def _drop(self, placement: Placement) -> None:
        del self._placed[placement.attempt.request]
        decode = self._workers.get(placement.decode)
        if decode is not None:
            decode.held.add(placement.decode_share(), -1)
        for process in (placement.decode, placement.prefill):
            worker = None if process is None else self._workers.get(process)
            if worker is None:
                continue
            if placement.attempt in worker.unseen_shares:
                _, share = worker.unseen_shares.pop(placement.attempt)
                worker.unseen.add(share, -1)
            worker.refresh()

    def check_integrity(self) -> None:
        """Raises:
        IndexCorrupt: an invariant of the class is broken.
        """
        for request, placement in self._placed.items():
            if placement.attempt.request != request:
                raise IndexCorrupt(f"{placement.attempt} is listed as {request}")
            if placement.decode not in self._workers:
                raise IndexCorrupt(f"{placement.attempt} is placed on {placement.decode}, unknown")
        for process, worker in self._workers.items():
            unseen = _total(share for _, share in worker.unseen_shares.values())
            held = _total(p.decode_share() for p in self._placed.values() if p.decode == process)
            if (unseen, held) != (worker.unseen, worker.held):
                raise IndexCorrupt(
                    f"{process}: {worker.unseen} unseen and {worker.held} held, "
                    f"but the parts make {unseen} and {held}"
                )
            for attempt in worker.unseen_shares:
                placed = self._placed.get(attempt.request)
                if placed is None or process not in (placed.decode, placed.prefill):
                    raise IndexCorrupt(f"{process} counts {attempt}, which isn't placed there")


def _total(shares: Iterable[Share]) -> Share:
    total = Share()
    for share in shares:
        total.add(share)
    return total
