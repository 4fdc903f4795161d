"""Threads on the locks of brokers: one for each, reporting each death once."""

from __future__ import annotations

import queue
import threading
from pathlib import Path

import pytest

from lakelog.metadata.errors import BrokerIdInUse
from lakelog.metadata.store.liveness import DeathWatch, Neighbourhood


class _Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_stopped_process_is_fenced_although_it_holds_its_lock(tmp_path: Path) -> None:
    clock = _Clock()
    neighbourhood = Neighbourhood(tmp_path / "metadata.db", clock, 9.0)
    registration = neighbourhood.register(1, b"1" * 16)
    clock.now += 8.9
    assert neighbourhood.live() == {1: b"1" * 16}
    clock.now += 0.2
    assert neighbourhood.live() == {}
    registration.beat()
    assert neighbourhood.live() == {1: b"1" * 16}
    registration.release()
    assert neighbourhood.live() == {}


def test_a_paused_process_has_no_recent_heartbeat_long_before_it_is_dead(tmp_path: Path) -> None:
    clock = _Clock()
    neighbourhood = Neighbourhood(tmp_path / "metadata.db", clock, 9.0)
    paused, running = (neighbourhood.register(each, bytes([each]) * 16) for each in (1, 2))
    clock.now += 2.9
    assert set(neighbourhood.live(3.0)) == {1, 2}
    running.beat()
    clock.now += 0.2
    assert set(neighbourhood.live(3.0)) == {2}
    assert set(neighbourhood.live()) == {1, 2}
    for _ in range(3):
        clock.now += 4.0
        live = neighbourhood.live(99.0)
    assert not live
    for each in (paused, running):
        each.release()


def test_a_reader_that_was_paused_gives_every_broker_a_full_timeout(tmp_path: Path) -> None:
    """The brokers of a host may have been paused together."""
    clock = _Clock()
    neighbourhood = Neighbourhood(tmp_path / "metadata.db", clock, 9.0)
    registration = neighbourhood.register(1, b"1" * 16)
    assert neighbourhood.live() == {1: b"1" * 16}
    clock.now += 30.0
    assert neighbourhood.live() == {1: b"1" * 16}
    for _ in range(2):
        clock.now += 4.0
        assert neighbourhood.live() == {1: b"1" * 16}
    clock.now += 1.1
    assert neighbourhood.live() == {}
    assert Neighbourhood(tmp_path / "metadata.db", clock, 9.0).live() == {}
    registration.release()


def test_one_holder_at_a_time(tmp_path: Path) -> None:
    neighbourhood = Neighbourhood(tmp_path / "metadata.db", _Clock(), 9.0)
    registration = neighbourhood.register(1, b"1" * 16)
    with pytest.raises(BrokerIdInUse):
        neighbourhood.register(1, b"2" * 16)
    registration.release()
    neighbourhood.register(1, b"2" * 16).release()


def test_other_files_are_no_brokers(tmp_path: Path) -> None:
    (tmp_path / "metadata.db-broker-x").touch()
    (tmp_path / "metadata.db-wal").touch()
    (tmp_path / "metadata.db-broker-3").touch()
    assert Neighbourhood(tmp_path / "metadata.db", _Clock(), 9.0).live() == {}


def test_a_deleted_lock_is_taken_again(tmp_path: Path) -> None:
    neighbourhood = Neighbourhood(tmp_path / "metadata.db", _Clock(), 9.0)
    registration = neighbourhood.register(1, b"1" * 16)
    assert registration.is_in_place()
    (tmp_path / "metadata.db-broker-1").unlink()
    assert not registration.is_in_place()
    assert neighbourhood.live() == {}
    registration = registration.renewed()
    assert registration.is_in_place()
    assert neighbourhood.live() == {1: b"1" * 16}
    registration.release()


def test_a_deleted_lock_that_another_process_has_taken_is_lost(tmp_path: Path) -> None:
    neighbourhood = Neighbourhood(tmp_path / "metadata.db", _Clock(), 9.0)
    registration = neighbourhood.register(1, b"1" * 16)
    (tmp_path / "metadata.db-broker-1").unlink()
    other = neighbourhood.register(1, b"2" * 16)
    assert not registration.is_in_place()
    with pytest.raises(BrokerIdInUse):
        registration.renewed()
    registration.release()
    other.release()


def test_a_refused_registration_keeps_no_file_open(tmp_path: Path) -> None:
    neighbourhood = Neighbourhood(tmp_path / "metadata.db", _Clock(), 9.0)
    registration = neighbourhood.register(1, b"1" * 16)
    before = sorted(Path("/dev/fd").iterdir())
    with pytest.raises(BrokerIdInUse):
        neighbourhood.register(1, b"2" * 16)
    assert sorted(Path("/dev/fd").iterdir()) == before
    registration.release()


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
