import pytest

from core.recent import RecentSet


def test_forgets_the_oldest_beyond_the_limit() -> None:
    recent: RecentSet[int] = RecentSet(2)
    for item in (1, 2, 3):
        recent.add(item)
    assert 1 not in recent
    assert 2 in recent
    assert 3 in recent
    assert len(recent) == 2


def test_adding_again_renews() -> None:
    recent: RecentSet[int] = RecentSet(2)
    for item in (1, 2, 1, 3):
        recent.add(item)
    assert 1 in recent
    assert 2 not in recent


def test_the_newest_come_in_the_order_of_their_adding() -> None:
    recent: RecentSet[int] = RecentSet(3)
    for item in (1, 2, 3, 2, 4):
        recent.add(item)
    assert recent.newest(2) == [2, 4]
    assert recent.newest(9) == [3, 2, 4]


def test_a_limit_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="limit"):
        RecentSet(0)
