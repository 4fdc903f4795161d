"""The story with a cluster, an ensemble and a load in memory; tests/system runs the real ones."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.testing.brokers import BrokerError
from lakelog.testing.cluster_demo import demo
from lakelog.testing.cluster_demo.demo import PARTITIONS, Demo
from lakelog.testing.cluster_demo.load import Acknowledged


class Broker:
    def __init__(self, calls: list[str], node_id: int) -> None:
        self.kill = lambda: calls.append(f"kill {node_id}")
        self.start = lambda: calls.append(f"start {node_id}")


class World:
    """Broker 1 is the controller and leads even partitions; broker 2 leads odd ones."""

    bootstrap_servers = "h:1"
    controller_id = 1

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.brokers = {node_id: Broker(self.calls, node_id) for node_id in (1, 2, 3)}
        self.kill = lambda number: self.calls.append(f"kill ZooKeeper {number}")
        self.start = lambda number: self.calls.append(f"start ZooKeeper {number}")
        self.wait_for = lambda number: self.calls.append(f"wait for ZooKeeper {number}")

    def leader_id(self, topic: str, partition: int) -> int:
        return 1 + partition % 2

    def await_in_sync(self, timeout_s: float) -> None:
        self.calls.append("in sync")


class Load:
    now_s, sent, failed = 0.0, 1, 0

    def __init__(self, *_: Any) -> None:
        self.acknowledged = [Acknowledged(0, 0, b"0", 0.0)]
        self.start = self.stop = lambda: None


@pytest.mark.parametrize("stored", [[(0, b"0")], []], ids=["kept", "lost"])
def test_each_fault_is_repaired_before_the_next_and_a_loss_fails(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    stored: list[tuple[int, bytes]],
) -> None:
    monkeypatch.setattr(demo, "Load", Load)
    monkeypatch.setattr(demo, "stored_records", lambda *_: {0: stored})
    world: Any = World()
    assert Demo(world, world, steady_s=0.0).run() == bool(stored)
    assert world.calls == [
        *("kill 2", "start 2", "in sync"),
        *("kill 1", "start 1", "in sync"),
        *("kill ZooKeeper 1", "start ZooKeeper 1", "wait for ZooKeeper 1", "in sync"),
    ]
    said = capsys.readouterr().out
    assert f"kill -9 broker 2, leader of {PARTITIONS // 2} partitions" in said
    assert ("Nothing acknowledged is missing." in said) == bool(stored)
    assert ("FAILED" in said) != bool(stored)


class Electing(World):
    """It elects while its leaders and its controller are asked for the first time."""

    def __init__(self) -> None:
        super().__init__()
        self._answers: Iterator[int] = chain([-1, -2], repeat(0))

    def _answer(self, node_id: int) -> int:
        answer = next(self._answers)
        if answer == -2:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        return answer or node_id

    @property
    def controller_id(self) -> int:  # type: ignore[override]
        return self._answer(1)

    def leader_id(self, topic: str, partition: int) -> int:
        return self._answer(super().leader_id(topic, partition))


def test_an_election_is_awaited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "Load", Load)
    monkeypatch.setattr(demo, "stored_records", lambda *_: {0: [(0, b"0")]})
    world: Any = Electing()
    assert Demo(world, world, steady_s=0.0).run()
    assert world.calls[:2] == ["kill 2", "start 2"]


def test_an_election_that_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "Load", Load)
    monkeypatch.setattr(demo, "_SETTLE_TIMEOUT_S", 0.1)
    monkeypatch.setattr(World, "controller_id", -1)
    world: Any = World()
    with pytest.raises(BrokerError, match="no controller after"):
        Demo(world, world, steady_s=0.0).run()
