from __future__ import annotations

from collections.abc import Iterator

import pytest

from memory_broker import MemoryBroker


@pytest.fixture
def world() -> Iterator[MemoryBroker]:
    """A broker with default settings and no topics."""
    with MemoryBroker() as started:
        yield started


@pytest.fixture
def coordinators(world: MemoryBroker) -> MemoryBroker:
    """The broker of `world`, with its coordinators loaded and a topic `orders`."""
    world.start_coordinators()
    world.create("orders", 2)
    return world
