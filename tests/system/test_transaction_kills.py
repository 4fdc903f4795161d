"""SIGKILL in the middle of transactions, then a restart: each is there whole, or not at all."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from clients.adapters.own import OwnAdmin
from clients.adapters.transactions import COMMITTED, TIMEOUT_S, read_all
from file_oracle import check_data_folder
from lakelog.client.producer import TransactionalProducer
from lakelog.protocol.transactions import (
    DescribedTransaction,
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from lakelog.storage.marks import BOOT_ID
from waiting import eventually
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


def describe(broker: BrokerProcess, *ids: str) -> list[DescribedTransaction]:
    with WireClient(broker.bootstrap) as wire:
        response = wire.call(DescribeTransactionsRequest(transactional_ids=list(ids)), 0)
    assert isinstance(response, DescribeTransactionsResponse)
    return response.transaction_states


def _is_committed(broker: BrokerProcess, transactional_id: str) -> bool:
    return describe(broker, transactional_id)[0].transaction_state == "CompleteCommit"


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
        eventually(partial(_is_committed, broker, f"t{number}"))
        (found,) = describe(broker, f"t{number}")
        assert (found.producer_id, found.producer_epoch) == identity
        expected = [b"%d" % n for n in range(number + 1)] * PARTITIONS
        assert read_all(broker.bootstrap, "out", COMMITTED, PARTITIONS) == expected
    broker.stop()
    check_data_folder(broker.data)


def test_what_transactions_are_in_comes_back_as_it_was(broker: BrokerProcess) -> None:
    """An ended, an open, and an empty transaction are described alike before and after."""
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


def begun_again(broker: BrokerProcess) -> tuple[int, int]:
    """Producer id and epoch that the next process of a producer gets."""
    with closing(TransactionalProducer(broker.bootstrap, "again")) as producer:
        with producer.transaction():
            producer.send("out", b"x", partition=0)
        return producer._identity


def test_a_producer_keeps_its_id_over_a_kill_but_not_over_a_boot(broker: BrokerProcess) -> None:
    with closing(TransactionalProducer(broker.bootstrap, "over a kill")) as producer:
        with producer.transaction():
            producer.send("out", b"before", partition=0)
        identity = producer._identity
        broker.kill()
        broker.restart()
        with producer.transaction():
            producer.send("out", b"after", partition=0)
        assert producer._identity[0] == identity[0]
        assert producer._identity[1] > identity[1]
    producer_id, epoch = begun_again(broker)
    broker.kill()
    broker.restart()
    same_id, next_epoch = begun_again(broker)
    assert (same_id, next_epoch > epoch) == (producer_id, True)
    broker.kill()
    boot, _, rest = (broker.data / BOOT_ID).read_text().partition(" ")
    other = boot.translate(str.maketrans("0123456789abcdef", "123456789abcdef0"))
    (broker.data / BOOT_ID).write_text(f"{other} {rest}")
    broker.restart()
    assert begun_again(broker)[0] > producer_id


def test_a_restored_copy_is_recovered_as_after_a_power_failure(broker: BrokerProcess) -> None:
    """It was made while the broker ran, on the same boot, and put where that had been."""
    producer_id, _ = begun_again(broker)
    copy = broker.data.with_name("copy")
    shutil.copytree(broker.data, copy)
    broker.kill()
    shutil.rmtree(broker.data)
    shutil.copytree(copy, broker.data)
    broker.restart()
    assert begun_again(broker)[0] > producer_id
