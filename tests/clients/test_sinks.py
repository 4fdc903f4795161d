"""Batches of sinks, committed as sets by lakelog's client, judged by librdkafka's consumer."""

from __future__ import annotations

import os
import uuid
from collections import Counter
from contextlib import closing

import pytest

from clients.adapters.patient import own_admin
from clients.adapters.transactions import COMMITTED, TIMEOUT_S, read_all
from lakelog.client.errors import ClientError
from lakelog.client.sink import BatchCommittedError, QueryRun, Receipt, Sink, SinkProducer

PARTITIONS = 2
TASKS = 2
BATCHES = 12


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"sink-{uuid.uuid4().hex[:8]}"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(name, PARTITIONS)
    return name


class Tasks:
    """The tasks of one batch after another; each attempt has its own number."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._attempts = 0

    def write(self, run: QueryRun, batch: int, task: int) -> Receipt:
        """Write a task; begin another attempt after an error, as Spark does."""
        while True:
            self._attempts += 1
            try:
                return self._attempt(run, batch, task)
            except BatchCommittedError:
                raise
            except ClientError:
                assert self._attempts < 100 * BATCHES

    def _attempt(self, run: QueryRun, batch: int, task: int) -> Receipt:
        with SinkProducer(self._bootstrap, linger_ms=0) as producer:
            producer.open(run, batch, task, self._attempts)
            for partition in range(PARTITIONS):
                value = b"%d.%d.%d" % (batch, task, partition)
                producer.send(self._topic, value, partition=partition)
            return producer.finish()


@pytest.mark.moving
@pytest.mark.skipif("LAKELOG_TEST_BOOTSTRAP" in os.environ, reason="Kafka has no commit sets")
def test_each_batch_is_visible_once_while_coordinators_move(bootstrap: str, topic: str) -> None:
    tasks = Tasks(bootstrap, topic)
    with Sink(bootstrap, topic, timeout_s=TIMEOUT_S) as sink:
        run = sink.begin("query", "run-0", 0)
        for batch in range(BATCHES):
            receipts = [tasks.write(run, batch, task) for task in range(TASKS)]
            tasks.write(run, batch, 0)  # a speculative attempt, which loses
            sink.commit(run, batch, receipts)
            sink.commit(run, batch, receipts)
            if batch % 4 == 3:
                run = sink.begin("query", f"run-{batch}", batch + 1)
                assert run.next_batch == batch + 1
    expected = Counter(
        b"%d.%d.%d" % (batch, task, partition)
        for batch in range(BATCHES)
        for task in range(TASKS)
        for partition in range(PARTITIONS)
    )
    assert Counter(read_all(bootstrap, topic, COMMITTED, PARTITIONS)) == expected
