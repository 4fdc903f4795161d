"""Errors of real clients when a limit of groups, members or partitions is reached."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka import admin as rd

from broker_process import BrokerProcess
from clients.adapters.confluent import TIMEOUT_S, Confluent
from waiting import eventually

SETTINGS = {
    "group.max.size": "1",
    "group.consumer.max.size": "1",
    "lakelog.groups.max": "3",
    "lakelog.transactional.ids.max": "1",
}
_TRIES_S = 2.0
"""librdkafka retries for so long, and then raises the broker's error."""
PER_REQUEST = "one request can create at most 10000 partitions; use several requests"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    data: Path = tmp_path_factory.mktemp("limits") / "data"
    with BrokerProcess(data, settings=SETTINGS) as broker:
        yield broker


@pytest.fixture
def topic(broker: BrokerProcess) -> str:
    name = f"t{uuid.uuid4().hex[:8]}"
    with closing(Confluent(broker.bootstrap).admin()) as admin:
        admin.create_topic(name, 1)
    return name


@pytest.fixture(autouse=True)
def no_groups(broker: BrokerProcess) -> None:
    """Delete the groups of other tests, which count for the limit."""
    admin = rd.AdminClient(_settings(broker))
    for each in admin.list_consumer_groups().result(TIMEOUT_S).valid:
        admin.delete_consumer_groups([each.group_id])[each.group_id].result(TIMEOUT_S)


def _settings(broker: BrokerProcess, **others: str) -> dict[str, Any]:
    named = {name.replace("_", "."): value for name, value in others.items()}
    return {"bootstrap.servers": broker.bootstrap, **named}


def _refused(work: Callable[[], object]) -> KafkaError:
    with pytest.raises(KafkaException) as refusal:
        work()
    error: KafkaError = refusal.value.args[0]
    return error


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_one_member_too_many(broker: BrokerProcess, topic: str, protocol: str) -> None:
    settings = _settings(broker, group_id=protocol, group_protocol=protocol)
    first, second = confluent_kafka.Consumer(settings), confluent_kafka.Consumer(settings)
    with closing(first), closing(second):
        first.subscribe([topic])
        eventually(lambda: (first.poll(0.05), first.assignment())[1])
        second.subscribe([topic])

        def refused() -> KafkaError | None:
            first.poll(0)
            message = second.poll(0.05)
            return None if message is None else message.error()

        error = eventually(refused)
        assert "Consumer group has reached maximum size" in error.str()
        if protocol == "classic":
            assert error.code() == KafkaError.GROUP_MAX_SIZE_REACHED
        else:
            assert error.code() == KafkaError._FATAL
        assert first.assignment() == [TopicPartition(topic, 0)]
        assert second.assignment() == []


def test_too_many_partitions_at_once(broker: BrokerProcess, topic: str) -> None:
    admin = rd.AdminClient(_settings(broker))
    huge = f"{topic}-huge"
    few, many = rd.NewTopic(f"{topic}-few", 1, 1), rd.NewTopic(huge, 10_001, 1)
    asked = admin.create_topics([few, many])
    asked[f"{topic}-few"].result(TIMEOUT_S)
    for answer in (
        asked[huge],
        admin.create_partitions([rd.NewPartitions(topic, 10_002)])[topic],
    ):
        error = _refused(lambda answer=answer: answer.result(TIMEOUT_S))  # type: ignore[misc]
        assert error.code() == KafkaError.POLICY_VIOLATION
        assert error.str() == PER_REQUEST
    topics = admin.list_topics(timeout=TIMEOUT_S).topics
    assert huge not in topics
    assert len(topics[topic].partitions) == 1


def test_one_transactional_id_too_many(broker: BrokerProcess) -> None:
    first = confluent_kafka.Producer(_settings(broker, transactional_id="first"))
    first.init_transactions(TIMEOUT_S)
    second = confluent_kafka.Producer(_settings(broker, transactional_id="second"))
    error = _refused(lambda: second.init_transactions(_TRIES_S))
    assert error.code() == KafkaError.POLICY_VIOLATION
    again = confluent_kafka.Producer(_settings(broker, transactional_id="first"))
    again.init_transactions(TIMEOUT_S)


def test_one_group_too_many(broker: BrokerProcess, topic: str) -> None:
    """Deleting a group makes room for another one."""

    def commit(group: str) -> None:
        consumer = confluent_kafka.Consumer(_settings(broker, group_id=group))
        with closing(consumer):
            consumer.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)

    admin = rd.AdminClient(_settings(broker))
    for number in range(3):
        commit(f"group {number}")
    error = _refused(lambda: commit("group 3"))
    assert error.code() == KafkaError.POLICY_VIOLATION
    admin.delete_consumer_groups(["group 1"])["group 1"].result(TIMEOUT_S)
    commit("group 3")
