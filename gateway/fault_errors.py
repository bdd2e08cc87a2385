"""What the router and the workers say went wrong, as errors for the client."""

from core.errors import (
    BatonError,
    BugError,
    CapacityError,
    ClientError,
    NoWorker,
    Overloaded,
    PeerLost,
    PromptTooLong,
)
from wire.messages import Fault, Refusal, RefusalKind


def refusal_error(refusal: Refusal) -> BatonError:
    match refusal.kind:
        case RefusalKind.OVERLOADED:
            return Overloaded(refusal.reason, refusal.retry_after_s)
        case RefusalKind.NO_WORKER:
            return NoWorker(refusal.reason, refusal.retry_after_s)
        case RefusalKind.TOO_LONG:
            return PromptTooLong(refusal.reason)


def fault_error(fault: Fault, reason: str) -> BatonError:
    match fault:
        case Fault.CALLER:
            return ClientError(reason)
        case Fault.CAPACITY:
            return CapacityError(reason)
        case Fault.PEER:
            return PeerLost(reason)
        case Fault.US:
            return BugError(reason)
