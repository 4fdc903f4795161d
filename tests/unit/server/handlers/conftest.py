from __future__ import annotations

from collections.abc import Iterator

import pytest

from memory_broker import MemoryBroker


@pytest.fixture
def world() -> Iterator[MemoryBroker]:
    """A broker with default settings and no topics."""
    with MemoryBroker() as started:
        yield started
