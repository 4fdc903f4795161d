"""Sinks over real processes: kills between all phases of a batch, judged by librdkafka."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from clients.adapters.own import OwnAdmin
from clients.adapters.transactions import COMMITTED, read_all
from lakelog.client.sink import (
    AnotherQueryError,
    BatchCommittedError,
    NotASinkError,
    QueryRun,
    Receipt,
    RecordsLostError,
    RunFencedError,
    Sink,
    SinkProducer,
    TransactionNotOpenError,
)
from open_tails import cut_open_records
from waiting import eventually

PARTITIONS = 3
TASKS = 2
SETTINGS = {"transaction.state.log.num.partitions": "4"}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=SETTINGS) as broker:
        with closing(OwnAdmin(broker.bootstrap)) as admin:
            admin.create_topic("out", PARTITIONS)
        yield broker


def visible(broker: BrokerProcess) -> Counter[bytes]:
    """Return the records that a foreign read-committed consumer reads, with their numbers."""
    return Counter(read_all(broker.bootstrap, "out", COMMITTED, PARTITIONS))


def expected(batches: int) -> Counter[bytes]:
    return Counter(
        b"%d.%d.%d" % (batch, task, partition)
        for batch in range(batches)
        for task in range(TASKS)
        for partition in range(PARTITIONS)
    )


class Query:
    """A query whose driver and tasks repeat their requests after failures, as Spark does."""

    def __init__(self, broker: BrokerProcess, kill: Callable[[str], None]) -> None:
        self.broker = broker
        self.kill = kill
        self.runs = self.attempts = 0

    def start(self, batch: int = 0) -> None:
        self.runs += 1
        self.sink = Sink(self.broker.bootstrap, "daily", timeout_s=60.0)
        self.run: QueryRun = self.sink.begin("query", f"run-{self.runs}", batch)

    def task(self, batch: int, task: int) -> Receipt:
        """Write one task; each attempt has its own number."""
        while True:
            self.attempts += 1
            with SinkProducer(self.broker.bootstrap, linger_ms=0) as producer:
                producer.open(self.run, batch, task, self.attempts)
                for partition in range(PARTITIONS):
                    value = b"%d.%d.%d" % (batch, task, partition)
                    producer.send("out", value, partition=partition)
                    if partition == 0:
                        producer.flush()
                        self.kill("writing")
                receipt = producer.finish()
            self.kill("acknowledged")
            return receipt

    def batch(self, batch: int) -> None:
        try:
            receipts = [self.task(batch, task) for task in range(TASKS)]
            self.task(batch, 0)  # a speculative attempt, which loses
            self.kill("before commit")
            with ThreadPoolExecutor(1) as driver:
                committed = driver.submit(self.sink.commit, self.run, batch, receipts)
                self.kill("in flight")
                committed.result()
            self.kill("after commit")
            self.sink.commit(self.run, batch, receipts)
        except BatchCommittedError:
            assert self.sink.begin("query", f"run-{self.runs}", batch).has_committed(batch)


PHASES = ("writing", "acknowledged", "before commit", "in flight", "after commit")


def test_each_batch_is_visible_once_whichever_phase_the_broker_dies_in(
    broker: BrokerProcess,
) -> None:
    left = list(PHASES)

    def kill(phase: str) -> None:
        if left and left[0] == phase:
            left.pop(0)
            broker.kill()
            broker.restart()

    query = Query(broker, kill)
    query.start()
    for batch in range(len(PHASES)):
        query.batch(batch)
        if batch == 2:
            query.sink.close()
            query.start(batch)
            assert query.run.next_batch == batch + 1
    query.sink.close()
    assert not left
    eventually(lambda: visible(broker) == expected(len(PHASES)))


def test_a_batch_that_a_new_run_repeats_is_visible_once(broker: BrokerProcess) -> None:
    query = Query(broker, lambda phase: None)
    query.start()
    old = [query.task(0, task) for task in range(TASKS)]
    former, former_sink = query.run, query.sink
    query.start()
    with pytest.raises(RunFencedError):
        former_sink.commit(former, 0, old)
    with pytest.raises(RunFencedError):
        former_sink.begin("query", "run-1", 0)
    query.batch(0)
    with pytest.raises(RunFencedError):
        former_sink.abort(former, 0)
    former_sink.close()
    query.sink.close()
    eventually(lambda: visible(broker) == expected(1))


def test_an_aborted_batch_is_invisible_and_can_be_written_again(broker: BrokerProcess) -> None:
    query = Query(broker, lambda phase: None)
    query.start()
    receipts = [query.task(0, task) for task in range(TASKS)]
    query.sink.abort(query.run, 0)
    with pytest.raises(TransactionNotOpenError):
        query.sink.commit(query.run, 0, receipts)
    query.batch(0)
    with pytest.raises(BatchCommittedError):
        query.sink.abort(query.run, 0)
    query.sink.close()
    eventually(lambda: visible(broker) == expected(1))


def test_a_batch_that_a_broker_lost_records_of_is_written_again(broker: BrokerProcess) -> None:
    query = Query(broker, lambda phase: None)
    query.start()
    query.batch(0)
    receipts = [query.task(1, task) for task in range(TASKS)]
    eventually(lambda: visible(broker) == expected(1))
    broker.kill()
    assert cut_open_records(broker.data / "out-1")
    broker.restart()
    with pytest.raises(RecordsLostError, match="log of out-1 has 0 of the 1 records of the task"):
        query.sink.commit(query.run, 1, receipts)
    query.sink.close()
    query.start(1)
    assert query.run.next_batch == 1
    query.batch(1)
    query.sink.close()
    eventually(lambda: visible(broker) == expected(2))


def test_a_batch_longer_than_the_timeout_is_an_error_that_names_it(broker: BrokerProcess) -> None:
    with Sink(broker.bootstrap, "daily") as sink:
        run = sink.begin("query", "run", 0)
        with SinkProducer(broker.bootstrap, transaction_timeout_ms=1_000) as producer:
            producer.open(run, 0, 0, 0)
            producer.send("out", b"late", partition=0)
            receipt = producer.finish()

            def has_ended() -> bool:
                status = sink.read()
                assert status is not None
                return not status.children

            eventually(has_ended)
            with pytest.raises(TransactionNotOpenError, match="exceeded its timeout of 1000 ms"):
                sink.commit(run, 0, [receipt])
    assert not visible(broker)


def test_a_sink_belongs_to_its_query_until_it_is_removed(broker: BrokerProcess) -> None:
    with Sink(broker.bootstrap, "daily") as sink:
        run = sink.begin("query", "run-1", 9)
        sink.commit(run, 9, [])
        with pytest.raises(AnotherQueryError, match="another sink id"):
            sink.begin("other", "run-2", 0)
        broker.kill()
        broker.restart()
        status = sink.read()
        assert status is not None
        assert (status.query_id, status.run_id, status.next_batch) == ("query", "run-1", 10)
        sink.remove()
        assert sink.read() is None
        with pytest.raises(NotASinkError):
            sink.remove()
        assert sink.begin("other", "run-2", 0).next_batch == -1
