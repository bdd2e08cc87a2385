import sys

import pytest

from core.config import TransportConfig
from core.errors import SetupError
from kv_transfer.open_transport import open_transport
from kv_transfer.region import allocate_region


def nothing(text: str) -> None:
    raise AssertionError(text)


@pytest.mark.parametrize("kind", ["tcp", "nixl"])
def test_the_configured_kind(kind: str) -> None:
    transport = open_transport(TransportConfig.model_validate({"kind": kind}), "w@1", nothing)
    transport.register(allocate_region(64, 2))
    assert transport.scheme == kind
    transport.close()


def test_without_nixl_the_start_ends_with_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nixl_cu12._api", None)
    with pytest.raises(SetupError, match=r"transport\.allow_fallback"):
        open_transport(TransportConfig(), "w@1", nothing)


def test_a_fallback_is_said_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nixl_cu12._api", None)
    said: list[str] = []
    transport = open_transport(TransportConfig(allow_fallback=True), "w@1", said.append)
    assert transport.scheme == "tcp"
    assert len(said) == 1
    assert "FALLS BACK" in said[0]
