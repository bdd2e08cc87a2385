import pytest

from core import errors
from core.errors import (
    BatonError,
    BugError,
    CapacityError,
    ClientError,
    ConfigError,
    Overloaded,
    PeerError,
    SetupError,
)

ALL: list[type[BatonError]] = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, BatonError) and value is not BatonError
]
STATUSES: dict[type[BatonError], set[int]] = {
    ClientError: {400, 401, 403, 404, 413},
    SetupError: {500},
    CapacityError: {429, 503, 504},
    PeerError: {502},
    BugError: {500},
}


def test_whose_fault_it_is_must_be_said() -> None:
    with pytest.raises(TypeError, match="say whose fault it is"):
        BatonError("something")


@pytest.mark.parametrize("kind", ALL, ids=lambda kind: kind.__name__)
def test_every_error_is_somebodys_and_has_a_status_that_fits(kind: type[BatonError]) -> None:
    owners = [owner for owner in STATUSES if issubclass(kind, owner)]
    assert len(owners) == 1
    assert kind.http_status in STATUSES[owners[0]]
    assert kind.__doc__ or kind.code != BatonError.code


def test_codes_tell_siblings_apart() -> None:
    own = [kind.code for kind in ALL if "code" in vars(kind)]
    assert len(set(own)) == len(own)


def test_errors_carry_what_their_reader_needs() -> None:
    assert ClientError("no", param="seed").param == "seed"
    assert Overloaded("full", retry_after_s=3.0).retry_after_s == 3.0
    wrong = ConfigError("scaling.yaml:3: router.heartbeat_ms", "must be > 0")
    assert str(wrong) == "scaling.yaml:3: router.heartbeat_ms: must be > 0"
    assert wrong.place == "scaling.yaml:3: router.heartbeat_ms"
