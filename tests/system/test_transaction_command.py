"""`lakelog txn` against a broker with transactions that are open, over, and hanging."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker_process import LAKELOG, BrokerProcess
from clients.adapters.own import OwnAdmin
from clients.adapters.transactions import COMMITTED, TIMEOUT_S, read_all
from lakelog.client.producer import TransactionalProducer
from lakelog.client.sink import Sink, SinkProducer
from wire_client import WireClient, batch_of, produce_request

UNVERIFIED = {
    "transaction.partition.verification.enable": "false",
    "transaction.state.log.num.partitions": "2",
}


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data", settings=UNVERIFIED) as broker:
        with closing(OwnAdmin(broker.bootstrap)) as admin:
            admin.create_topic("orders", 2)
        yield broker


def txn(broker: BrokerProcess, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [LAKELOG, "txn", *words, "-b", broker.bootstrap],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env=os.environ | {"NO_COLOR": "1"},
    )


def as_json(broker: BrokerProcess, *words: str) -> Any:
    done = txn(broker, *words, "-f", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def hang(broker: BrokerProcess) -> None:
    """A batch of a transaction that no coordinator has ever heard of."""
    batch = batch_of(b"hanging", producer=(4711, 0, 0), transactional=True)
    request = produce_request("orders", batch, transaction="nobody")
    with WireClient(broker.bootstrap) as wire:
        answer = wire.call(request, 11).responses[0].partition_responses[0]
    assert answer.error_code == 0, answer


def test_list_and_describe(broker: BrokerProcess) -> None:
    with TransactionalProducer(broker.bootstrap, "billing") as producer:
        with producer.transaction():
            producer.send("orders", b"a", partition=0)
        producer.begin()
        producer.send("orders", b"b", partition=1).result(TIMEOUT_S)
        (row,) = as_json(broker, "list")
        assert (row["transactional_id"], row["state"]) == ("billing", "Ongoing")
        assert as_json(broker, "list", "--state", "Empty") == []
        assert as_json(broker, "list", "--longer-than", "1h") == []
        assert len(as_json(broker, "list", "--match", "bill.*")) == 1
        (found,) = as_json(broker, "describe", "billing")
        assert found["partitions"] == [{"topic": "orders", "partition": 1}]
        assert found["running_ms"] >= 0
    assert as_json(broker, "describe", "billing")[0]["partitions"] == []
    assert as_json(broker, "list", "--longer-than", "0s") == [], "nothing is running"
    assert "did you mean 'billing'?" in txn(broker, "describe", "biling").stderr
    table = txn(broker, "list").stdout
    assert "billing" in table
    assert "CompleteAbort" in table


def test_what_cannot_be_found(broker: BrokerProcess) -> None:
    unknown = txn(broker, "describe", "nobody")
    assert (unknown.returncode, unknown.stdout) == (3, "")
    assert "LL0211" in unknown.stderr
    none = txn(broker, "abort", "orders", "0", "--yes")
    assert none.returncode == 3
    assert "LL0212" in none.stderr
    wrong = txn(broker, "list", "--match", "(")
    assert (wrong.returncode, wrong.stdout) == (2, "")
    assert "--match '(' is not a regular expression" in wrong.stderr
    assert txn(broker, "list", "--state", "Odd").returncode == 2


def test_a_hanging_transaction_is_found(broker: BrokerProcess) -> None:
    assert as_json(broker, "hanging") == []
    hang(broker)
    with TransactionalProducer(broker.bootstrap, "billing") as producer:
        producer.begin()
        producer.send("orders", b"open", partition=0).result(TIMEOUT_S)
        for topics in ((), ("orders",)):
            (found,) = as_json(broker, "hanging", *topics)
            assert (found["topic"], found["partition"], found["producer_id"]) == ("orders", 0, 4711)
            assert found["start_offset"] == 0
    assert "4711" in txn(broker, "hanging").stdout
    assert txn(broker, "hanging", "missing").returncode == 3


def test_a_hanging_transaction_is_aborted(broker: BrokerProcess) -> None:
    hang(broker)
    with TransactionalProducer(broker.bootstrap, "billing") as producer, producer.transaction():
        producer.send("orders", b"held back", partition=0)
    assert read_all(broker.bootstrap, "orders", COMMITTED) == []
    assert "LL0901" in txn(broker, "abort", "orders", "0").stderr, "it asks first"
    (done,) = as_json(broker, "abort", "orders", "0", "--yes")
    assert (done["topic"], done["partition"], done["producer_id"]) == ("orders", 0, 4711)
    assert read_all(broker.bootstrap, "orders", COMMITTED) == [b"held back"]


def test_abort_refuses_a_transaction_that_has_a_coordinator(broker: BrokerProcess) -> None:
    with TransactionalProducer(broker.bootstrap, "billing") as producer:
        producer.begin()
        producer.send("orders", b"open", partition=0).result(TIMEOUT_S)
        refused = txn(broker, "abort", "orders", "0", "--yes")
        assert refused.returncode == 6
        assert "LL0213" in refused.stderr
        assert "billing" in refused.stderr
        forced = txn(broker, "abort", "orders", "0", "--yes", "--force")
        assert forced.returncode == 0, forced.stderr
        assert as_json(broker, "describe", "billing")[0]["state"] == "Ongoing"


def test_a_sink_is_listed_described_and_removed(broker: BrokerProcess) -> None:
    with Sink(broker.bootstrap, "daily") as sink, SinkProducer(broker.bootstrap) as producer:
        run = sink.begin("query", "run-1", 4)
        sink.commit(run, 4, [])
        producer.open(run, 5, 0, 0)
        producer.send("orders", b"open", partition=0)
        producer.finish()
        rows = {row["transactional_id"]: row for row in as_json(broker, "list")}
        assert (rows["daily"]["next_batch"], rows["daily"]["open_children"]) == (5, 1)
        (found,) = as_json(broker, "describe", "daily")
        assert (found["query_id"], found["run_id"], found["next_batch"]) == ("query", "run-1", 5)
        assert [row["transactional_id"] for row in found["children"]] == ["daily/5/0/0"]
        refused = txn(broker, "remove", "daily")
        assert "--yes" in refused.stderr
        unknown = txn(broker, "remove", "dayly", "--yes")
        assert "LL0211" in unknown.stderr
        assert "daily" in unknown.stderr
        removed = txn(broker, "remove", "daily", "--yes")
        assert removed.returncode == 0, removed.stderr
        assert as_json(broker, "list") == []
    assert read_all(broker.bootstrap, "orders", COMMITTED, 2) == []
