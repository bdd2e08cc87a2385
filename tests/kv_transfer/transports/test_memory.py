import pytest

from core.errors import BugError, TransportError
from kv_transfer.region import allocate_region
from kv_transfer.transport import Op, PostFailed
from kv_transfer.transports.memory import MemoryHub, MemoryTransport


def test_names_are_unique_in_a_hub() -> None:
    hub = MemoryHub()
    MemoryTransport(hub, "d").register(allocate_region(8, 1))
    with pytest.raises(BugError, match="already"):
        MemoryTransport(hub, "d")


def test_a_link_does_not_reach_the_next_of_that_name() -> None:
    hub = MemoryHub()
    p, d = MemoryTransport(hub, "p"), MemoryTransport(hub, "d")
    p.register(allocate_region(8, 1))
    d.register(allocate_region(8, 1))
    link = p.connect(d.address())
    d.abort()
    region = allocate_region(8, 1)
    MemoryTransport(hub, "d").register(region)
    p.post(link, Op.WRITE, [(0, 0)], b"")
    assert isinstance(p.poll()[0], PostFailed)


def test_nobody_there() -> None:
    hub = MemoryHub()
    p, d = MemoryTransport(hub, "p"), MemoryTransport(hub, "d")
    p.register(allocate_region(8, 1))
    d.register(allocate_region(8, 1))
    address = d.address()
    d.abort()
    with pytest.raises(TransportError, match="isn't there"):
        p.connect(address)
