"""Snapshots of the members, and who is lost between two of them."""

from gateway.membership_view import STALE_AFTER_S, MembershipView
from tests.gateway.fake_deployment import D, P, make_peer, view
from wire.messages import MemberState, Role

D_AGAIN = make_peer("decode-0", incarnation=2)


def test_who_is_dead_is_lost_once() -> None:
    members = MembershipView()
    assert members.update((view(P, Role.PREFILL), view(D, Role.DECODE)), 0.0) == []
    dead = (view(P, Role.PREFILL), view(D, Role.DECODE, MemberState.DEAD))
    assert members.update(dead, 1.0) == [(D.process, False)]
    assert members.update(dead, 2.0) == []


def test_a_newer_incarnation_proves_the_end_of_the_older() -> None:
    members = MembershipView()
    members.update((view(D, Role.DECODE),), 0.0)
    assert members.update((view(D_AGAIN, Role.DECODE),), 1.0) == [(D.process, True)]
    both = (view(D_AGAIN, Role.DECODE), view(D, Role.DECODE, MemberState.DEAD))
    assert members.update(both, 2.0) == []
    assert members.address_of(D_AGAIN.process) == D_AGAIN.address


def test_a_restarted_router_that_knows_nobody_loses_nobody() -> None:
    members = MembershipView()
    members.update((view(D, Role.DECODE),), 0.0)
    assert members.update((), 1.0) == []
    assert members.update((view(D, Role.DECODE),), 2.0) == []
    assert members.update((view(D_AGAIN, Role.DECODE),), 3.0) == [(D.process, True)]


def test_suspects_still_take_work_and_leavers_do_not() -> None:
    members = MembershipView()
    members.update(
        (
            view(P, Role.PREFILL, MemberState.SUSPECT),
            view(D, Role.DECODE, MemberState.DRAINING),
        ),
        0.0,
    )
    assert [v.card.peer for v in members.serving(Role.PREFILL)] == [P]
    assert members.serving(Role.DECODE) == []


def test_a_snapshot_grows_old() -> None:
    members = MembershipView()
    assert not members.is_fresh(0.0)
    members.update((), 1.0)
    assert members.is_fresh(1.0 + STALE_AFTER_S - 0.01)
    assert not members.is_fresh(1.0 + STALE_AFTER_S)
