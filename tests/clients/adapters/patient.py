"""The part of an application while brokers restart: it repeats calls that failed transiently.

Libraries repeat different calls themselves. kafka-python's and aiokafka's admin clients raise
an error when the broker that they chose is down, kafka-python's consumer also from `poll`, and
librdkafka raises NOT_LEADER from `offsets_for_times`. Our own client has to repeat by itself, so
its errors are raised here.

A change is known to the other brokers a moment later than to the controller, as in Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager, suppress
from functools import partial
from typing import TypeVar

import aiokafka.errors
import confluent_kafka
import kafka
import kafka.errors
from kafka.admin import MemberToRemove

from clients.adapters.api import Admin, Client, Consumer, GroupDescription, Member, Received
from clients.adapters.own import OwnAdmin
from lakelog.client.errors import OutcomeUnknownError
from waiting import eventually
from wire_client import WireClient, described

T = TypeVar("T")
M = TypeVar("M", bound=Member)
_RETRY_S = 0.1
_NO_CONNECTION = (
    kafka.errors.KafkaConnectionError,
    kafka.errors.NodeNotReadyError,
    aiokafka.errors.KafkaConnectionError,
    aiokafka.errors.NodeNotReadyError,
)
_MOVED = (
    kafka.errors.NotLeaderForPartitionError,
    kafka.errors.UnknownTopicOrPartitionError,
    kafka.errors.OffsetNotAvailableError,
    kafka.errors.CoordinatorLoadInProgressError,
    kafka.errors.CoordinatorNotAvailableError,
    kafka.errors.NotCoordinatorError,
    aiokafka.errors.NotLeaderForPartitionError,
    aiokafka.errors.UnknownTopicOrPartitionError,
    aiokafka.errors.GroupLoadInProgressError,
    aiokafka.errors.GroupCoordinatorNotAvailableError,
    aiokafka.errors.NotCoordinatorForGroupError,
)
_NO_CONNECTION_CODES = {
    confluent_kafka.KafkaError._TRANSPORT,
    confluent_kafka.KafkaError._TIMED_OUT,
}
_MOVED_CODES = {
    confluent_kafka.KafkaError.NOT_LEADER_FOR_PARTITION,
    confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
    confluent_kafka.KafkaError.OFFSET_NOT_AVAILABLE,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_COORDINATOR,
}


def _is_transient(error: Exception, *, reads: bool) -> bool:
    """Return whether an application may repeat a call; reads also when another broker answers."""
    if isinstance(error, confluent_kafka.KafkaException):
        code = error.args[0].code()
        return code in _NO_CONNECTION_CODES or (reads and code in _MOVED_CODES)
    return isinstance(error, _NO_CONNECTION) or (reads and isinstance(error, _MOVED))


def _may_repeat_change(error: Exception) -> bool:
    return isinstance(error, OutcomeUnknownError) or _is_transient(error, reads=False)


def patiently(call: Callable[[], T], *, reads: bool = True) -> T:
    """Repeat a call while its error is transient; return its result, or raise its other error."""
    (result,) = eventually(
        lambda: (call(),),
        what="a call without a transient error",
        passing=partial(_is_transient, reads=reads),
        every_s=_RETRY_S,
    )
    return result


def _remove_member(bootstrap: str, group: str, member_id: str) -> None:
    """Do as an operator does. Apache Kafka's admin client has this as well."""
    admin = kafka.KafkaAdminClient(bootstrap_servers=bootstrap.split(","))
    try:
        results = admin.remove_group_members(group, [MemberToRemove(member_id=member_id)])
    finally:
        admin.close()
    (result,) = results.values()
    if result not in (kafka.errors.NoError, kafka.errors.UnknownMemberIdError):
        raise result


def leave(consumer: Member, group: str | None, bootstrap: str) -> None:
    """Close a consumer, and remove its member if it is still in the group.

    No library repeats a LeaveGroup that its coordinator does not answer. A coordinator that takes
    over begins each member's session again, as Apache Kafka's does: where coordinators move more
    often than a session ends, such a member would block each rebalance for ever.
    """
    member_id = consumer.member_id()
    with suppress(CancelledError):  # aiokafka cancels its own `stop` if its coordinator goes
        consumer.close()
    if group and member_id:
        patiently(lambda: _remove_member(bootstrap, group, member_id))


@contextmanager
def leaving(consumer: M, group: str, bootstrap: str) -> Iterator[M]:
    """Call `leave` at the end of the block."""
    try:
        yield consumer
    finally:
        leave(consumer, group, bootstrap)


class PatientConsumer:
    """A consumer. A failed poll has returned no records and moved no position."""

    def __init__(self, consumer: Consumer, group: str | None, bootstrap: str) -> None:
        self._consumer = consumer
        self._group = group
        self._bootstrap = bootstrap
        self.member_id = consumer.member_id
        self.assign, self.seek = consumer.assign, consumer.seek
        self.assignment, self.commit = consumer.assignment, consumer.commit

    def close(self) -> None:
        leave(self._consumer, self._group, self._bootstrap)

    def poll(self, timeout_s: float) -> list[Received]:
        return patiently(lambda: self._consumer.poll(timeout_s))

    def offsets_for_time(self, topic: str, partitions: Sequence[int], at_ms: int) -> dict[int, int]:
        return patiently(lambda: self._consumer.offsets_for_time(topic, partitions, at_ms))


class PatientAdmin:
    """An admin client whose changes are known to all brokers when a call returns."""

    def __init__(self, admin: Admin, bootstrap: str) -> None:
        self._admin = admin
        self._bootstrap = bootstrap
        self.close = admin.close

    def create_topic(
        self, topic: str, partitions: int, config: Mapping[str, str] | None = None
    ) -> None:
        self._change(
            lambda: self._admin.create_topic(topic, partitions, config),
            lambda: topic in self.topics(),
        )
        self._await_everywhere(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        self._change(lambda: self._admin.delete_topic(topic), lambda: topic not in self.topics())
        self._await_everywhere(topic, 0)

    def add_partitions(self, topic: str, total: int) -> None:
        self._change(
            lambda: self._admin.add_partitions(topic, total),
            lambda: self.partition_count(topic) == total,
        )
        self._await_everywhere(topic, total)

    def alter_topic_config(self, topic: str, changes: Mapping[str, str]) -> None:
        patiently(lambda: self._admin.alter_topic_config(topic, changes), reads=False)

    def topics(self) -> set[str]:
        return patiently(self._admin.topics)

    def partition_count(self, topic: str) -> int:
        return patiently(lambda: self._admin.partition_count(topic))

    def topic_config(self, topic: str) -> dict[str, str | None]:
        return patiently(lambda: self._admin.topic_config(topic))

    def groups(self) -> set[str]:
        return patiently(self._admin.groups)

    def describe_group(self, group: str) -> GroupDescription:
        return patiently(lambda: self._admin.describe_group(group))

    def committed(self, group: str, topic: str) -> dict[int, int]:
        return patiently(lambda: self._admin.committed(group, topic))

    def earliest_and_latest(self, topic: str, partition: int) -> tuple[int, int]:
        return patiently(lambda: self._admin.earliest_and_latest(topic, partition))

    def cluster_nodes(self) -> set[tuple[int, str, int]]:
        return patiently(self._admin.cluster_nodes)

    def _change(self, call: Callable[[], None], is_done: Callable[[], bool]) -> None:
        """Carry out a change once, although a lost connection leaves its outcome unknown.

        Brokers repeat a request whose controller ends, as Apache Kafka's do: the second attempt
        may find the change of the first one, and fail. Our own client repeats no such request: it
        raises `OutcomeUnknownError`, after which an application has to look.
        """
        was_done = is_done()

        def has_changed() -> bool:
            try:
                call()
            except Exception:
                if was_done or not is_done():
                    raise
            return True

        eventually(has_changed, what="a change", passing=_may_repeat_change, every_s=_RETRY_S)

    def _await_everywhere(self, topic: str, partitions: int) -> None:
        for address in self._bootstrap.split(","):
            eventually(lambda address=address: _count_at(address, topic) == partitions)  # type: ignore[misc]


def _count_at(address: str, topic: str) -> int | None:
    try:
        with WireClient(address) as client:
            return len(described(client, topic).partitions)
    except (OSError, EOFError):  # it restarts
        return None


def own_admin(bootstrap: str) -> PatientAdmin:
    """Return an admin client of our own library, to prepare a test."""
    return PatientAdmin(OwnAdmin(bootstrap), bootstrap)


class Patient:
    """A library in an application that expects brokers to restart."""

    def __init__(self, client: Client, bootstrap: str) -> None:
        self._client = client
        self._bootstrap = bootstrap
        self.name, self.produce = client.name, client.produce
        self.alters_configs = client.alters_configs
        self.sends_null_headers = client.sends_null_headers

    def consumer(self, group: str | None = None, topic: str | None = None) -> PatientConsumer:
        return PatientConsumer(self._client.consumer(group, topic), group, self._bootstrap)

    def admin(self) -> PatientAdmin:
        return PatientAdmin(patiently(self._client.admin), self._bootstrap)
