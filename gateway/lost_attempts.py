"""What a request's lost attempts mean for the next: whom it avoids, when it begins, whether at all.

A request may cost two attempts a worker's process and no more: if the request itself is what kills
them, it must not go through the whole fleet. Other losses (a link that flaps, a full pool) count
only while nothing new comes of the attempts.
"""

from collections import deque
from dataclasses import dataclass

from core.ids import Attempt, Epoch, ProcessId
from gateway.attempt_state import AttemptState
from wire.messages import Peer

PAUSES_S = (0.1, 0.4, 1.6)
"""Before the next attempt, by how many in a row were lost without a new token; the last one goes
on. After an attempt that delivered there is no pause: its client is reading."""
PROOF_PAUSE_S = 1.0
"""The least pause from the second loss on: if its worker has died, the launcher's word is here by
then, and there is no third."""
DEATHS_ALLOWED = 2
DEATH_BELONGS_S = 30.0
"""A process that ends this long after an attempt was lost on it has died of something else."""
LOSSES_KEPT = 16


@dataclass(frozen=True, slots=True)
class _Loss:
    attempt: Attempt
    needed: frozenset[ProcessId]
    at_s: float


class LostAttempts:
    """Of one request. `limit`: how many attempts in a row may be lost with nothing delivered."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._fruitless = 0
        self._losses: deque[_Loss] = deque(maxlen=LOSSES_KEPT)
        self._avoid: dict[ProcessId, None] = {}
        self._ended: set[ProcessId] = set()
        self._deaths: dict[ProcessId, Epoch] = {}
        """Processes that died while the attempt of this epoch needed them."""

    @property
    def avoid(self) -> tuple[ProcessId, ...]:
        return tuple(self._avoid)

    @property
    def fruitless(self) -> int:
        """Lost in a row without a new token."""
        return self._fruitless

    @property
    def exhausted(self) -> bool:
        return self._fruitless >= self._limit

    @property
    def poisonous(self) -> bool:
        """Workers have died on as many attempts as are allowed. Both workers of one attempt count
        once: a machine that fails takes both."""
        return len(set(self._deaths.values())) >= DEATHS_ALLOWED

    @property
    def dead(self) -> str:
        """Names of the workers that died, for the reason."""
        return ", ".join(process.name for process in self._deaths)

    def has_ended(self, process: ProcessId) -> bool:
        """Proven: nothing of it is left to be told anything."""
        return process in self._ended

    def add(self, current: AttemptState, blamed: Peer | None, now_s: float) -> None:
        """`current` is lost; the next one had better avoid `blamed`."""
        if blamed is not None:
            self._avoid[blamed.process] = None
        self._fruitless = 0 if current.delivered else self._fruitless + 1
        needed = frozenset(peer.process for peer in current.needed_peers())
        self._losses.append(_Loss(current.attempt, needed, now_s))
        for process in needed & self._ended:
            self._deaths.setdefault(process, current.attempt.epoch)

    def process_ended(self, process: ProcessId, now_s: float) -> None:
        """Proven, perhaps after its connection broke and another attempt has begun."""
        self._ended.add(process)
        for loss in reversed(self._losses):
            if process in loss.needed:
                if now_s <= loss.at_s + DEATH_BELONGS_S:
                    self._deaths.setdefault(process, loss.attempt.epoch)
                return

    def pause_s(self) -> float:
        """How long the next attempt waits."""
        if not self._losses:
            return 0.0
        by_count = PAUSES_S[min(self._fruitless, len(PAUSES_S)) - 1] if self._fruitless else 0.0
        return by_count if len(self._losses) == 1 else max(by_count, PROOF_PAUSE_S)
