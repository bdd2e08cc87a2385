"""Every fault and every refusal has its error."""

from core.errors import CapacityError, ClientError, PeerError
from core.ids import Attempt, Epoch, RequestId
from gateway.fault_errors import fault_error, refusal_error
from wire.messages import Fault, Refusal, RefusalKind

ATTEMPT = Attempt(RequestId("r"), Epoch(1))


def test_faults_by_status() -> None:
    status = {fault: fault_error(fault, "why").http_status for fault in Fault}
    assert status == {Fault.CALLER: 400, Fault.CAPACITY: 503, Fault.PEER: 502, Fault.US: 500}
    assert isinstance(fault_error(Fault.PEER, "why"), PeerError)


def test_refusals_by_status() -> None:
    for kind, status in (
        (RefusalKind.OVERLOADED, 429),
        (RefusalKind.NO_WORKER, 503),
        (RefusalKind.TOO_LONG, 400),
    ):
        refusal = Refusal(attempt=ATTEMPT, kind=kind, reason="why", retry_after_s=4.5)
        error = refusal_error(refusal)
        assert (error.http_status, error.message) == (status, "why")
        if isinstance(error, CapacityError):
            assert error.retry_after_s == 4.5
        else:
            assert isinstance(error, ClientError)
