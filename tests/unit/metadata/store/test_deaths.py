"""Threads on the locks of brokers: one for each, reporting each death once."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

from lakelog.metadata.store.deaths import DeathWatch
from lakelog.metadata.store.liveness import Neighbourhood

TIMEOUT_S = 60


def _neighbourhood(path: Path) -> Neighbourhood:
    return Neighbourhood(path / "metadata.db", lambda: 100.0, 9.0)


def _threads(broker_id: int) -> list[threading.Thread]:
    name = f"lakelog-broker-{broker_id}-watch"
    return [thread for thread in threading.enumerate() if thread.name == name]


def test_each_death_is_reported_once(tmp_path: Path) -> None:
    neighbourhood = _neighbourhood(tmp_path)
    deaths: queue.Queue[None] = queue.Queue()
    watch = DeathWatch(neighbourhood, lambda: deaths.put(None))
    brokers = {number: neighbourhood.register(number, b"i" * 16) for number in (51, 52)}
    watch.follow(brokers)
    watch.follow(brokers)
    assert [len(_threads(number)) for number in brokers] == [1, 1]
    for registration in brokers.values():
        registration.release()
        deaths.get(timeout=TIMEOUT_S)
    watch.close()
    assert deaths.empty()


def test_a_broker_that_returns_can_be_followed_again(tmp_path: Path) -> None:
    neighbourhood = _neighbourhood(tmp_path)
    deaths: queue.Queue[None] = queue.Queue()
    watch = DeathWatch(neighbourhood, lambda: deaths.put(None))
    for _ in range(3):
        registration = neighbourhood.register(53, b"i" * 16)
        watch.follow([53])
        registration.release()
        deaths.get(timeout=TIMEOUT_S)
    watch.close()


def test_a_dead_broker_is_reported_at_once(tmp_path: Path) -> None:
    neighbourhood = _neighbourhood(tmp_path)
    neighbourhood.register(54, b"i" * 16).release()
    deaths: queue.Queue[None] = queue.Queue()
    watch = DeathWatch(neighbourhood, lambda: deaths.put(None))
    watch.follow([54])
    deaths.get(timeout=TIMEOUT_S)
    watch.close()


def test_a_closed_watch_reports_nothing_and_its_threads_end(tmp_path: Path) -> None:
    neighbourhood = _neighbourhood(tmp_path)
    deaths: queue.Queue[None] = queue.Queue()
    registration = neighbourhood.register(55, b"i" * 16)
    watch = DeathWatch(neighbourhood, lambda: deaths.put(None))
    watch.follow([55])
    watch.close()
    threads = _threads(55)
    assert all(thread.daemon for thread in threads), "it must not delay the end of the process"
    registration.release()
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert not _threads(55)
    assert deaths.empty()


def test_a_file_that_cannot_be_opened_is_no_death(tmp_path: Path) -> None:
    deaths: queue.Queue[None] = queue.Queue()
    watch = DeathWatch(_neighbourhood(tmp_path), lambda: deaths.put(None))
    watch.follow([56])
    for thread in _threads(56):
        thread.join(TIMEOUT_S)
    assert deaths.empty()
    watch.close()
