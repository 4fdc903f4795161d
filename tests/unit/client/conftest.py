from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.client import errors
from lakelog.client.cluster import Cluster
from scripted_broker import ScriptedBroker


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(errors, "FIRST_S", 0.001)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    """A broker with the topic `orders` of two partitions."""
    with ScriptedBroker() as broker:
        yield broker


@pytest.fixture
def cluster(broker: ScriptedBroker) -> Iterator[Cluster]:
    with Cluster(broker.address, timeout_s=10.0) as cluster:
        yield cluster
