"""SIGKILL in the middle of transactions, then a restart: each is there whole, or not at all."""

from __future__ import annotations

import random
import re
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import confluent_kafka
import pytest

from broker_process import BrokerProcess, eventually
from clients.adapters.own import OwnAdmin
from clients.adapters.transactions import COMMITTED, TIMEOUT_S, UNCOMMITTED, read_all
from file_oracle import check_data_folder, dump
from lakelog.client.producer import TransactionalProducer
from lakelog.protocol.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)
from wire_client import WireClient

PARTITIONS = 12
ROUNDS = 4


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"transaction.state.log.num.partitions": "4"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with closing(OwnAdmin(broker.bootstrap)) as admin:
            admin.create_topic("out", PARTITIONS)
        yield broker


def describe(broker: BrokerProcess, *ids: str) -> list[TransactionState]:
    with WireClient(broker.bootstrap) as wire:
        response = wire.call(DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
    assert isinstance(response, DescribeTransactionsResponse)
    return response.transaction_states


def test_killed_as_soon_as_the_commit_is_acknowledged(broker: BrokerProcess) -> None:
    """The decision is in the log; the markers may or may not be: the next start sees to them."""
    for number in range(ROUNDS):
        producer = TransactionalProducer(broker.bootstrap, f"t{number}")
        producer.begin()
        for partition in range(PARTITIONS):
            producer.send("out", b"%d" % number, partition=partition)
        producer.commit()
        broker.kill()
        identity = producer._identity
        producer.close()
        broker.restart()
        eventually(
            lambda n=number: describe(broker, f"t{n}")[0].transaction_state == "CompleteCommit"
        )
        (found,) = describe(broker, f"t{number}")
        assert (found.producer_id, found.producer_epoch) == identity
        expected = [b"%d" % n for n in range(number + 1)] * PARTITIONS
        assert read_all(broker.bootstrap, "out", COMMITTED, PARTITIONS) == expected
    broker.stop()
    check_data_folder(broker.data)


def test_what_transactions_are_in_comes_back_as_it_was(broker: BrokerProcess) -> None:
    """An ended one, an open one, one that never began: equal before and after."""
    ended = TransactionalProducer(broker.bootstrap, "ended")
    with ended.transaction():
        ended.send("out", b"seen", partition=0)
    opened = TransactionalProducer(broker.bootstrap, "opened", transaction_timeout_ms=600_000)
    opened.begin()
    for partition in range(3):
        opened.send("out", b"open", partition=partition).result(TIMEOUT_S)
    opened.send_offsets("readers", {("out", 0): 1})
    ids = ("ended", "opened")
    eventually(lambda: describe(broker, "ended")[0].transaction_state == "CompleteCommit")
    before = describe(broker, *ids)
    broker.kill()
    broker.restart()
    assert describe(broker, *ids) == before
    assert [topic.topic for topic in before[1].topics] == ["__consumer_offsets", "out"]
    assert read_all(broker.bootstrap, "out", COMMITTED, 1) == [b"seen"]
    opened.send("out", b"open", partition=0).result(TIMEOUT_S)
    opened.commit()
    assert read_all(broker.bootstrap, "out", COMMITTED, 1) == [b"seen", b"open", b"open"]
    for producer in (ended, opened):
        producer.close()


class Worker(threading.Thread):
    """Writes numbered values to several partitions, transaction after transaction, whatever
    happens to the broker; notes how each one ended as far as it was told."""

    def __init__(self, bootstrap: str, name: str) -> None:
        super().__init__(name=name)
        self._address = bootstrap
        self._random = random.Random(name)
        self.stopping = threading.Event()
        self.outcomes: dict[int, str] = {}

    def run(self) -> None:
        number = 0
        while not self.stopping.is_set():
            try:
                producer = self._new()
                while not self.stopping.is_set():
                    number += 1
                    self.outcomes[number] = "unknown"
                    self.outcomes[number] = self._transact(producer, number)
            except confluent_kafka.KafkaException:
                pass  # a new one fences it, and what it left is aborted

    def _new(self) -> confluent_kafka.Producer:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": self._address,
                "transactional.id": self.name,
                "transaction.timeout.ms": 10_000,
                "linger.ms": 0,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 100,
            }
        )
        producer.init_transactions(TIMEOUT_S)
        return producer

    def _transact(self, producer: confluent_kafka.Producer, number: int) -> str:
        producer.begin_transaction()
        for partition in range(0, PARTITIONS, 3):
            producer.produce("out", f"{self.name} {number}".encode(), partition=partition)
        if self._random.random() < 0.3:
            producer.flush(TIMEOUT_S)
            producer.abort_transaction(TIMEOUT_S)
            return "aborted"
        producer.commit_transaction(TIMEOUT_S)
        return "committed"

    @property
    def committed(self) -> int:
        return sum(outcome == "committed" for outcome in list(self.outcomes.values()))


@pytest.mark.java
def test_transactions_under_kills(broker: BrokerProcess) -> None:
    workers = [Worker(broker.bootstrap, f"worker-{number}") for number in range(3)]
    for worker in workers:
        worker.start()
    for _ in range(ROUNDS):
        wanted = [worker.committed + 3 for worker in workers]
        eventually(
            lambda wanted=wanted: all(
                worker.committed >= count for worker, count in zip(workers, wanted, strict=True)
            ),
            60,
            "transactions",
        )
        broker.kill()
        broker.restart()
    for worker in workers:
        worker.stopping.set()
    for worker in workers:
        worker.join(60)
        assert not worker.is_alive()
    # Whoever comes next ends what the last ones may have left open.
    for worker in workers:
        with TransactionalProducer(broker.bootstrap, worker.name) as producer:
            producer.begin()
    _check(broker, workers)
    broker.stop()
    check_data_folder(broker.data)
    _check_dump(broker.data, workers)


def _check(broker: BrokerProcess, workers: list[Worker]) -> None:
    seen = read_all(broker.bootstrap, "out", COMMITTED, PARTITIONS)
    stored = read_all(broker.bootstrap, "out", UNCOMMITTED, PARTITIONS)
    copies = len(range(0, PARTITIONS, 3))
    for worker in workers:
        for number, outcome in worker.outcomes.items():
            count = seen.count(f"{worker.name} {number}".encode())
            allowed = {"committed": {copies}, "aborted": {0}, "unknown": {0, copies}}[outcome]
            assert count in allowed, (worker.name, number, outcome)
    assert len(stored) > len(seen), "no abort was tried"
    states = describe(broker, *(worker.name for worker in workers))
    assert {state.transaction_state for state in states} <= {"CompleteCommit", "CompleteAbort"}


def _check_dump(data: Path, workers: list[Worker]) -> None:
    """Apache Kafka reads the newest state of each id in our records."""
    logs = sorted(data.glob("__transaction_state-*/*.log"))
    printed, complaints = dump(logs, "--transaction-log-decoder")
    assert not complaints
    for worker in workers:
        states = re.findall(
            rf'"transactionalId":"{worker.name}".*?"transactionStatus":(\d)', printed
        )
        assert states, printed[-2000:]
        assert states[-1] in "45"
