from tests.wire.channel_kit import A, B, Make, cancel, raw_peer, soon, until
from wire.channel import PeerGone
from wire.codec import encode
from wire.keys import DeploymentKeys


async def test_other_keys_get_nothing_through(make: Make) -> None:
    b = await make(B)
    stranger = await make(A, DeploymentKeys.create())
    stranger.send(b.address, cancel(1))
    gone = await soon(stranger.receive())
    assert isinstance(gone, PeerGone)
    assert b._inbox.empty()


async def test_knowing_the_public_key_is_not_enough(make: Make) -> None:
    b = await make(B)
    with raw_peer(b.address, DeploymentKeys.create()) as (dealer, _):
        dealer.send(encode(A, cancel(1)))
        await until(lambda: b.refused_total > 0)
    assert b._inbox.empty()


async def test_plain_text_gets_nothing_through(make: Make) -> None:
    b = await make(B)
    with raw_peer(b.address, None) as (dealer, monitor):
        dealer.send(encode(A, cancel(1)))
        await until(lambda: monitor.poll(0) > 0)
    assert b._inbox.empty()
