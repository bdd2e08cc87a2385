"""A set that remembers the last so many things: cancels that may arrive before what they cancel."""

from collections import OrderedDict
from collections.abc import Hashable
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item", bound=Hashable)


class RecentSet(Generic[Item]):
    """The `limit` most recently added items; older ones are forgotten."""

    def __init__(self, limit: int = 4_096) -> None:
        if limit < 1:
            raise ValueError(f"limit must be at least 1, not {limit}")
        self._limit = limit
        self._items: OrderedDict[Item, None] = OrderedDict()

    def add(self, item: Item) -> None:
        self._items[item] = None
        self._items.move_to_end(item)
        if len(self._items) > self._limit:
            self._items.popitem(last=False)

    def newest(self, count: int) -> list[Item]:
        """The `count` most recently added, oldest of them first."""
        return list(islice(reversed(self._items), count))[::-1]

    def __contains__(self, item: object) -> bool:
        return item in self._items

    def __len__(self) -> int:
        return len(self._items)
