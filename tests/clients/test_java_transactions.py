"""Java's transactional producer, and Apache Kafka's own tool for transactions."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from broker_process import BrokerProcess
from clients.adapters.own import OwnAdmin
from clients.adapters.patient import own_admin
from clients.adapters.transactions import COMMITTED, TIMEOUT_S, read_all
from clients.test_java_tools import TOOLS, Tools
from lakelog.client.producer import TransactionalProducer
from lakelog.client.sink import Sink, SinkProducer
from lakelog.coordinator.transaction.state import TransactionState
from waiting import eventually
from wire_client import WireClient, batch_of, produce_request

pytestmark = pytest.mark.java

RECORDS = 200
_LOG_S = 180.0


@pytest.fixture
def topic(bootstrap: str) -> str:
    name = f"java-txn-{uuid.uuid4().hex[:8]}"
    with closing(own_admin(bootstrap)) as admin:
        admin.create_topic(name, 1)
    return name


def test_javas_producer_commits_transaction_after_transaction(bootstrap: str, topic: str) -> None:
    """KIP-890: it sends no AddPartitionsToTxn, and continues with the next epoch."""
    tools = Tools(bootstrap)
    tools(
        f"{TOOLS}.ProducerPerformance",
        *("--topic", topic, "--num-records", str(RECORDS), "--record-size", "10"),
        *("--throughput", "400", "--transactional-id", topic),
        *("--transaction-duration-ms", "50"),
    )
    assert len(read_all(bootstrap, topic, COMMITTED)) == RECORDS
    described = tools(f"{TOOLS}.TransactionsCommand", "describe", "--transactional-id", topic)
    epoch = int(re.split(r"\s+", described.splitlines()[1])[3])
    assert epoch >= 2, described
    assert "CompleteCommit" in described


def _transaction_log(tools: Tools, wanted: set[str]) -> dict[str, Any] | None:
    """Return the last values by transactional id; none if the tool ended before all wanted ones."""
    printed = tools(
        f"{TOOLS}.consumer.ConsoleConsumer",
        *("--topic", "__transaction_state", "--from-beginning", "--timeout-ms", "15000"),
        *("--formatter", f"{TOOLS}.consumer.TransactionLogMessageFormatter"),
    )
    records = [json.loads(text) for text in printed.replace('}{"key"', '}\n{"key"').splitlines()]
    found = {row["key"]["data"]["transactionalId"]: row["value"] for row in records}
    return found if found.keys() >= wanted else None


def test_kafkas_tools_are_undisturbed_by_a_sink(bootstrap: str, topic: str) -> None:
    """The fields of commit sets are tagged: the tools ignore them on the wire and in records."""
    tools = Tools(bootstrap)
    with Sink(bootstrap, topic) as sink, SinkProducer(bootstrap) as producer:
        run = sink.begin("query", "run", 0)
        producer.open(run, 0, 0, 0)
        producer.send(topic, b"v", partition=0)
        receipt = producer.finish()
        child = receipt.transactional_id
        described = tools(f"{TOOLS}.TransactionsCommand", "describe", "--transactional-id", child)
        assert f"{topic}-0" in described
        assert "Ongoing" in described
        sink.commit(run, 0, [receipt])
        assert read_all(bootstrap, topic, COMMITTED) == [b"v"]
    found = eventually(lambda: _transaction_log(tools, {topic, child}), _LOG_S)
    states = [found[name]["data"]["transactionStatus"] for name in (topic, child)]
    assert states == [TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT]
    assert {found[name]["version"] for name in (topic, child)} == {1}


@pytest.fixture
def unverified(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"transaction.partition.verification.enable": "false"}
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        with closing(OwnAdmin(broker.bootstrap)) as admin:
            admin.create_topic("orders", 1)
        yield broker


def test_kafkas_tool_lists_describes_and_aborts(unverified: BrokerProcess) -> None:
    bootstrap = unverified.bootstrap
    tools = Tools(bootstrap)
    command = f"{TOOLS}.TransactionsCommand"
    batch = batch_of(b"hanging", producer=(4711, 0, 0), transactional=True)
    with WireClient(bootstrap) as wire:
        request = produce_request("orders", batch, transaction="nobody")
        answer = wire.call(request, 11).responses[0].partition_responses[0]
        assert answer.error_code == 0
    # Two tools run, each in a JVM of its own, while the transaction is open.
    with TransactionalProducer(bootstrap, "billing", transaction_timeout_ms=900_000) as producer:
        producer.begin()
        producer.send("orders", b"open", partition=0).result(TIMEOUT_S)
        assert re.search(r"billing\s+\d+\s+\d+\s+Ongoing", tools(command, "list"))
        described = tools(command, "describe", "--transactional-id", "billing")
        assert "orders-0" in described
        producer.commit()
    active = tools(command, "describe-producers", "--topic", "orders", "--partition", "0")
    assert re.search(r"4711\s+0", active)
    tools(command, "abort", "--topic", "orders", "--partition", "0", "--start-offset", "0")
    assert read_all(bootstrap, "orders", COMMITTED) == [b"open"]
