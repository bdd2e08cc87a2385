from core.ids import ProcessId
from router.subscribers import EXPIRES_AFTER_S, Subscribers
from tests.router.world import GATEWAY, process
from wire.messages import Peer

AGAIN = Peer(process("gateway", 2), "tcp://gateway:2")


def test_the_first_wish_is_fresh_and_the_next_renews() -> None:
    subscribers = Subscribers()
    assert subscribers.subscribe(GATEWAY, 0.0) == (True, None)
    assert subscribers.subscribe(GATEWAY, EXPIRES_AFTER_S - 0.1) == (False, None)
    assert subscribers.expire(EXPIRES_AFTER_S) == []
    assert subscribers.addresses() == [GATEWAY.address]


def test_without_renewal_it_expires() -> None:
    subscribers = Subscribers()
    subscribers.subscribe(GATEWAY, 0.0)
    assert subscribers.expire(EXPIRES_AFTER_S) == [GATEWAY]
    assert subscribers.addresses() == []
    assert subscribers.expire(EXPIRES_AFTER_S) == []


def test_a_new_life_replaces_the_older() -> None:
    subscribers = Subscribers()
    subscribers.subscribe(GATEWAY, 0.0)
    assert subscribers.subscribe(AGAIN, 1.0) == (True, GATEWAY.process)
    assert subscribers.addresses() == [AGAIN.address]


def test_a_broken_connection_mutes_until_the_next_wish() -> None:
    subscribers = Subscribers()
    subscribers.subscribe(GATEWAY, 0.0)
    subscribers.peer_gone(GATEWAY.address)
    assert subscribers.addresses() == []
    assert subscribers.subscribe(GATEWAY, 1.0) == (True, None)
    assert subscribers.addresses() == [GATEWAY.address]


def test_only_this_very_process_is_removed() -> None:
    subscribers = Subscribers()
    subscribers.subscribe(AGAIN, 0.0)
    gone: ProcessId = GATEWAY.process
    assert not subscribers.remove(gone)
    assert subscribers.remove(AGAIN.process)
    assert not subscribers.remove(AGAIN.process)
