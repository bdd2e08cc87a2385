"""What is special about NIXL; the rest is the contract suite's."""

import logging
import sys

import pytest

from core.errors import SetupError, TransportError
from kv_transfer.region import allocate_region
from kv_transfer.transports.nixl import NixlTransport
from kv_transfer.transports.pool_address import Detail, PoolAddress, decode_address, encode_address


def test_nixls_own_log_leaves_stdout_alone(capsys: pytest.CaptureFixture[str]) -> None:
    transport = NixlTransport("quiet")
    transport.register(allocate_region(64, 2))
    transport.abort()
    logging.getLogger("nixl.api").error("to be seen, elsewhere")
    captured = capsys.readouterr()
    assert captured.out == ""


def test_an_address_that_lends_anothers_agent_is_refused() -> None:
    """Whoever is at the other end must be who the control channel said."""
    here, there = NixlTransport("here"), NixlTransport("there")
    here.register(allocate_region(64, 2))
    there.register(allocate_region(64, 2))
    honest = decode_address(there.address(), "nixl")
    forged = PoolAddress("nixl", "somebody", 64, 2, honest.details)
    with pytest.raises(TransportError, match="is that of 'there'"):
        here.connect(encode_address(forged))
    assert here.connect(there.address()).peer == "there"
    here.abort()
    there.abort()


def test_metadata_that_is_none_is_refused() -> None:
    here = NixlTransport("here")
    here.register(allocate_region(64, 2))
    wrong: list[dict[str, Detail]] = [
        {"agent": b"nonsense", "base": 4096},
        {"agent": b"", "base": 1 << 63},
    ]
    for details in wrong:
        with pytest.raises(TransportError):
            here.connect(encode_address(PoolAddress("nixl", "there", 64, 2, details)))
    here.abort()


def test_without_nixl_it_is_the_operators_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nixl_cu12._api", None)
    with pytest.raises(SetupError, match="NIXL can't be loaded"):
        NixlTransport("here")
