from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from lakelog.client.errors import UnreachableError
from lakelog.spark.archive import enabled as module
from lakelog.spark.archive.enabled import SessionOnce, Supervisor
from lakelog.spark.archive.upkeep import Refreshes, Upkeep
from lakelog.tables.archive.failures import SyncError
from waiting import eventually

ENABLED = {"table.enable": "true", "table.name": "", "table.warehouse": ""}


class World:
    """Stand-ins for a cluster and for `sync_topic`: topics with their keys, and running jobs."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, str]] = {}
        self.is_away = False
        self.calls: list[tuple[str, str, Any]] = []
        self.failing: set[str] = set()
        self.running: set[str] = set()

    def __enter__(self) -> World:
        if self.is_away:
            raise UnreachableError("no broker")
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def configs(self, names: object, keys: object) -> dict[str, dict[str, str]]:
        return self.topics

    def sync(self, bootstrap: str, topic: str, warehouse: str, **options: Any) -> None:
        self.calls.append((topic, warehouse, options["table"]))
        if topic in self.failing:
            raise SyncError(f"{topic} cannot be archived")
        self.running.add(topic)
        options["stop"].wait(60)
        self.running.discard(topic)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    world = World()
    monkeypatch.setattr(World, "topics", {}, raising=False)
    monkeypatch.setattr(module, "TopicClient", lambda *_, **__: _Client(world))
    monkeypatch.setattr(module, "sync_topic", world.sync)
    return world


class _Client:
    def __init__(self, world: World) -> None:
        self._world = world

    def __enter__(self) -> _Client:
        self._world.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to close."""

    def topics(self) -> list[str]:
        return list(self._world.topics)

    def configs(self, names: object, keys: object) -> dict[str, dict[str, str]]:
        return self._world.topics


class NoUpkeep:
    def run(self, topics: object) -> None:
        """No table needs upkeep."""


class StillAlive:
    """The thread of a job that needs long to end."""

    def is_alive(self) -> bool:
        return True


@pytest.fixture
def notes() -> list[str]:
    return []


@pytest.fixture
def supervisor(world: World, notes: list[str]) -> Supervisor:
    def session() -> Any:
        return object()

    return Supervisor(
        "b:1",
        "/default",
        None,
        SessionOnce(session),
        {},
        lambda topic, state: None,
        notes.append,
        cast("Upkeep", NoUpkeep()),
        Refreshes("b:1", notes.append),
    )


def step(supervisor: Supervisor, now: float = 0.0) -> None:
    found = supervisor._enabled()
    if found is not None:
        supervisor._adjust(found, now)


def end(supervisor: Supervisor) -> None:
    for job in supervisor._jobs.values():
        job.stop.set()
        job.thread.join(60)


def test_a_topic_that_is_enabled_again_at_once_has_a_job_again(
    world: World, supervisor: Supervisor
) -> None:
    world.topics = {"a": ENABLED}
    step(supervisor)
    job = supervisor._jobs["a"]
    job.thread, thread = cast("threading.Thread", StillAlive()), job.thread
    world.topics = {}
    step(supervisor)
    world.topics = {"a": ENABLED}
    step(supervisor)
    job.thread = thread
    thread.join(60)
    step(supervisor)
    assert len(world.calls) == 2
    assert not supervisor._jobs["a"].stop.is_set()
    end(supervisor)


def test_each_enabled_topic_has_a_job_until_it_is_disabled(
    world: World, supervisor: Supervisor, notes: list[str]
) -> None:
    world.topics = {"a": ENABLED, "b": {**ENABLED, "table.warehouse": "/w", "table.name": "t"}}
    world.topics["c"] = {"table.enable": "false"}
    step(supervisor)
    step(supervisor)
    assert sorted(world.calls) == [("a", "/default", "a"), ("b", "/w", "t")]
    job = supervisor._jobs["a"]
    del world.topics["a"]
    step(supervisor)
    job.thread.join(60)
    step(supervisor)
    assert supervisor._jobs.keys() == {"b"}
    assert notes[-1] == "a: its archive is no longer enabled"
    end(supervisor)


def test_a_topic_that_fails_starts_again_after_longer_and_longer_pauses(
    world: World, supervisor: Supervisor, notes: list[str]
) -> None:
    world.topics, world.failing = {"a": ENABLED, "b": ENABLED}, {"a"}
    step(supervisor)
    supervisor._jobs["a"].thread.join(60)
    step(supervisor, now=100)
    step(supervisor, now=109)
    assert [call[0] for call in world.calls].count("a") == 1
    step(supervisor, now=111)
    supervisor._jobs["a"].thread.join(60)
    step(supervisor, now=112)
    assert [call[0] for call in world.calls].count("a") == 2
    assert [note for note in notes if "cannot" in note] == [
        "a: a cannot be archived; next attempt in 10 s",
        "a: a cannot be archived; next attempt in 20 s",
    ]
    assert [call[0] for call in world.calls].count("b") == 1, "the other topic is not disturbed"
    end(supervisor)


def test_an_outage_is_reported_once_and_stops_nothing(
    world: World, supervisor: Supervisor, notes: list[str]
) -> None:
    world.topics = {"a": ENABLED}
    step(supervisor)
    world.is_away = True
    step(supervisor)
    step(supervisor)
    world.is_away = False
    step(supervisor)
    assert len(world.calls) == 1
    assert [note for note in notes if "brokers" in note or "no broker" in note] == [
        "no broker answers at b:1 (BROKER_NOT_AVAILABLE: no broker); waiting",
        "the brokers answer again",
    ]
    end(supervisor)


def test_a_supervisor_that_is_stopped_ends_its_jobs(world: World, supervisor: Supervisor) -> None:
    world.topics = {"a": ENABLED}
    stop = threading.Event()
    thread = threading.Thread(target=supervisor.run, args=(stop,))
    thread.start()
    eventually(lambda: world.running)
    stop.set()
    thread.join(60)
    assert not world.running


def test_threads_share_one_session() -> None:
    made: list[object] = []

    def session() -> Any:
        made.append(object())
        return made[-1]

    once = SessionOnce(session)
    threads = [threading.Thread(target=lambda: once.opened) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
