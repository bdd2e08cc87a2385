from collections.abc import AsyncIterator

import pytest

from tests.wire.channel_kit import Make, channels


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """`await make(process)` binds a channel, which is closed after the test."""
    async with channels() as make_one:
        yield make_one
