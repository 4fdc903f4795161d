"""A metadata file that is lost, replaced or comes back while brokers run on it."""

from __future__ import annotations

import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from broker_process import LAKELOG, BrokerError, BrokerProcess
from waiting import eventually

Brokers = dict[int, BrokerProcess]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "metadata").mkdir()
    return tmp_path / "metadata" / "cluster.db"


@pytest.fixture
def brokers(tmp_path: Path, store: Path) -> Iterator[Brokers]:
    """Two brokers of one file, in which there is a topic."""
    with ExitStack() as stack:
        made = {
            number: stack.enter_context(
                BrokerProcess(
                    tmp_path / f"data{number}",
                    arguments=("--node-id", str(number), "--metadata", f"sqlite:{store}"),
                )
            )
            for number in (1, 2)
        }
        eventually(lambda: _create(made[1], "orders", "--replication-factor", "2") == 0)
        yield made


def _create(broker: BrokerProcess, topic: str, *more: str) -> int:
    command = [LAKELOG, "topic", "create", topic, "-b", broker.bootstrap, *more]
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode


def _produce(broker: BrokerProcess) -> None:
    command = [LAKELOG, "produce", "orders", "-b", broker.bootstrap]
    subprocess.run(command, input="one\n", text=True, check=True, timeout=60)


def _count(brokers: Brokers, text: str) -> int:
    return sum(broker.log().count(text) for broker in brokers.values())


def test_without_the_file_brokers_serve_and_wait_and_go_on_when_it_is_back(
    brokers: Brokers, store: Path
) -> None:
    for broker in brokers.values():
        _produce(broker)  # which reserves ids for later producers
    elections = _count(brokers, "controller_elected")
    away = store.with_name("away.db")
    store.rename(away)
    for number, broker in brokers.items():
        assert _create(broker, f"refused{number}", "--timeout", "5s") != 0
        _produce(broker)
    away.rename(store)
    for number, broker in brokers.items():
        eventually(lambda: _create(broker, f"created{number}") == 0)  # noqa: B023 - called here
    assert _count(brokers, "controller_elected") == elections
    assert _count(brokers, "broker_fenced") == 0
    for broker in brokers.values():
        assert broker.log().count("metadata_log_failed") <= 1
        assert broker.log().count("fencing_failed") <= 1


def test_brokers_whose_locks_were_deleted_take_them_again(brokers: Brokers, store: Path) -> None:
    elections = _count(brokers, "controller_elected")
    locks = [store.with_name(f"{store.name}-broker-{number}") for number in brokers]
    for lock in locks:
        lock.unlink()
    eventually(lambda: all(lock.exists() for lock in locks))
    eventually(lambda: _create(brokers[2], "later", "--replication-factor", "2") == 0)
    # A broker may see the other one before it has its lock again, but not more than once each.
    assert _count(brokers, "controller_elected") <= elections + 4


def test_brokers_stop_when_another_file_takes_the_place(brokers: Brokers, store: Path) -> None:
    backup = store.with_name("backup.db")
    with closing(sqlite3.connect(store)) as source, closing(sqlite3.connect(backup)) as target:
        source.backup(target)
    assert _create(brokers[1], "after") == 0
    backup.rename(store)
    for broker in brokers.values():
        assert broker.wait() == 6
        assert broker.log().count("metadata_refused") == 1
        assert "error[LL0707]" in broker.log()
        assert "was replaced while a broker used it" in broker.log()
    for name in ("-wal", "-shm", "-end"):
        store.with_name(store.name + name).unlink(missing_ok=True)
    with pytest.raises(BrokerError, match="was seen before: the file was restored"):
        brokers[1].start()
