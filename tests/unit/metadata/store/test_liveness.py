from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.metadata.errors import BrokerIdInUse
from lakelog.metadata.store.liveness import Neighbourhood


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
