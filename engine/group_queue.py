"""Groups in order of deadline, then of arrival: who is served first, and who gives way first."""

from bisect import bisect_left, insort
from collections.abc import Iterator

from core.errors import IndexCorrupt
from engine.sequence import Group


def _key(group: Group) -> tuple[float, int]:
    return group.key


class GroupQueue:
    """A sorted list: O(log n) to find a place, and moves of a few kilobytes at worst."""

    def __init__(self) -> None:
        self._groups: list[Group] = []

    def __len__(self) -> int:
        return len(self._groups)

    def __iter__(self) -> Iterator[Group]:
        """Tightest deadline first. Don't change the queue meanwhile: iterate over a copy."""
        return iter(self._groups)

    def __reversed__(self) -> Iterator[Group]:
        return reversed(self._groups)

    @property
    def head(self) -> Group | None:
        """The group with the tightest deadline."""
        return self._groups[0] if self._groups else None

    def add(self, group: Group) -> None:
        insort(self._groups, group, key=_key)

    def remove(self, group: Group) -> None:
        """Raises: IndexCorrupt if it isn't in the queue."""
        index = bisect_left(self._groups, group.key, key=_key)
        if index == len(self._groups) or self._groups[index] is not group:
            raise IndexCorrupt(f"{group.attempt} ({group.state}) isn't in the queue it should be")
        del self._groups[index]

    def check_integrity(self) -> None:
        """Raises: IndexCorrupt if the order is broken."""
        keys = [group.key for group in self._groups]
        if keys != sorted(set(keys)):
            raise IndexCorrupt(f"groups out of order: {keys}")
