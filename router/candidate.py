"""A worker that may be chosen, with everything the choice depends on."""

from dataclasses import dataclass, field

from core.ids import ProcessId
from router.load_view import WorkerFigures
from wire.messages import MemberState, Role, WorkerCard


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """`figures` are the load view's own and change with it; the rest holds until the members
    change. `max_batch` (sequences) and `step_tokens` are its pool's engine settings."""

    card: WorkerCard
    state: MemberState
    figures: WorkerFigures
    max_batch: int
    step_tokens: int

    process: ProcessId = field(init=False)
    prefills: bool = field(init=False)

    def __post_init__(self) -> None:
        # Attributes rather than properties: they are read for every worker at each decision.
        object.__setattr__(self, "process", self.card.peer.process)
        object.__setattr__(self, "prefills", Role.PREFILL in self.card.roles)
