"""Consumer groups of both protocols: their list, members, committed offsets and lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import partial

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.committed import Committed, commit_offsets, fetch_committed
from lakelog.client.errors import (
    ClientError,
    ConnectionLostError,
    UnreachableError,
    check,
    outcome_unknown,
)
from lakelog.client.offsets import LATEST, TopicPartition, list_offsets
from lakelog.protocol import groups as messages
from lakelog.protocol.consumer_protocol import ConsumerProtocolAssignment, decode_versioned
from lakelog.wire.primitives import WireError

CONSUMER_PROTOCOL = "consumer"
CLASSIC, CONSUMER = "classic", "consumer"


@dataclass(slots=True, frozen=True)
class GroupMember:
    """A member. protocol: classic or consumer. epoch: -1 in a classic group."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    partitions: tuple[TopicPartition, ...]
    protocol: str = CLASSIC
    epoch: int = -1


@dataclass(slots=True, frozen=True)
class Group:
    """A group and its members.

    state: Kafka's name: Empty, Stable or Dead; in a classic group also PreparingRebalance and
    CompletingRebalance, in a consumer group also Assigning and Reconciling. protocol: the assignor.
    """

    group_id: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[GroupMember, ...]
    group_type: str = CLASSIC
    epoch: int = -1


def classic_group(row: messages.DescribedGroup) -> Group:
    """Return the group in a row of a DescribeGroups response."""
    is_consumer = row.protocol_type == CONSUMER_PROTOCOL
    members = [_classic_member(member, is_consumer=is_consumer) for member in row.members]
    return Group(
        row.group_id, row.group_state, row.protocol_type, row.protocol_data, tuple(members)
    )


def _classic_member(row: messages.DescribedGroupMember, *, is_consumer: bool) -> GroupMember:
    partitions: list[TopicPartition] = []
    if is_consumer and row.member_assignment:
        try:
            assignment = decode_versioned(ConsumerProtocolAssignment, row.member_assignment)
        except WireError:
            assignment = ConsumerProtocolAssignment()
        partitions = [(t.topic, p) for t in assignment.assigned_partitions for p in t.partitions]
    return GroupMember(
        row.member_id,
        row.group_instance_id,
        row.client_id,
        row.client_host,
        tuple(sorted(partitions)),
    )


def consumer_group(row: messages.DescribedConsumerGroup) -> Group:
    """Return the group in a row of a ConsumerGroupDescribe response (KIP-848)."""
    return Group(
        group_id=row.group_id,
        state=row.group_state,
        protocol_type=CONSUMER_PROTOCOL,
        protocol=row.assignor_name,
        members=tuple(_consumer_member(member) for member in row.members),
        group_type=CONSUMER,
        epoch=row.group_epoch,
    )


def _consumer_member(row: messages.Member) -> GroupMember:
    return GroupMember(
        member_id=row.member_id,
        instance_id=row.instance_id,
        client_id=row.client_id,
        client_host=row.client_host,
        partitions=tuple(sorted(_partitions(row.assignment))),
        protocol=CLASSIC if row.member_type == 0 else CONSUMER,
        epoch=row.member_epoch,
    )


def _partitions(assignment: messages.Assignment) -> list[TopicPartition]:
    return [
        (t.topic_name, partition) for t in assignment.topic_partitions for partition in t.partitions
    ]


_DEAD = "Dead"
_NO_CONSUMER_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
_ACTIVE = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)


@dataclass(slots=True, frozen=True)
class GroupListing:
    group_id: str
    protocol_type: str
    state: str = ""
    group_type: str = ""


@dataclass(slots=True, frozen=True)
class Lag:
    """A group's progress in a partition: its next offset, and the end of the partition."""

    committed: int
    end: int

    @property
    def records(self) -> int:
        """Number of records after the committed offset."""
        return max(self.end - self.committed, 0)


class Groups:
    """`Admin.groups`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def list(self) -> list[GroupListing]:
        """Return the groups of all brokers, ordered by id.

        Raises `UnreachableError`, and the last `ClientError` of a broker that does not answer.
        """
        self._cluster.refresh([])
        listings: dict[str, GroupListing] = {}
        for node in list(self._cluster.view.brokers):
            ask = partial(_groups_of, self._cluster, node)
            listings |= {listing.group_id: listing for listing in self._cluster.retrying(ask)}
        return [listings[group] for group in sorted(listings)]

    def describe(self, group: str) -> Group:
        """Return the description of a group of either protocol. Raises GROUP_ID_NOT_FOUND."""

        def work() -> Group:
            classic, missing = None, None
            try:
                classic = self._describe_classic(group)
            except ClientError as error:
                if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                    raise
                missing = error
            if classic is not None and classic.state != _DEAD:
                return classic
            try:
                return self._describe_consumer(group)
            except ClientError as error:
                if error.code not in _NO_CONSUMER_GROUP:
                    raise
            if classic is None:
                assert missing is not None
                raise missing
            return classic

        return self._cluster.retrying_coordinator(group, work)

    def _describe_classic(self, group: str) -> Group:
        request = messages.DescribeGroupsRequest(groups=[group])
        response = self._cluster.ask_coordinator(group, request, messages.DescribeGroupsResponse)
        described = response.groups[0]
        check(described.error_code, f"group {group!r}", described.error_message)
        return classic_group(described)

    def _describe_consumer(self, group: str) -> Group:
        request = messages.ConsumerGroupDescribeRequest(group_ids=[group])
        response = self._cluster.ask_coordinator(
            group, request, messages.ConsumerGroupDescribeResponse
        )
        described = response.groups[0]
        check(described.error_code, f"group {group!r}", described.error_message)
        return consumer_group(described)

    def delete(self, group: str) -> None:
        """Delete a group and its offsets.

        Raises GROUP_ID_NOT_FOUND and NON_EMPTY_GROUP, and `OutcomeUnknownError` if the connection
        broke before the response.
        """
        request = messages.DeleteGroupsRequest(groups_names=[group])

        def work() -> None:
            node = self._cluster.coordinator(group).node_id
            try:
                response = self._cluster.ask(node, request, messages.DeleteGroupsResponse)
            except ConnectionLostError as error:
                # Not repeated: after a success, a second request would not find the group.
                raise outcome_unknown(f"deleting group {group!r}", error) from error
            (result,) = response.results
            check(result.error_code, f"group {group!r}", result.error_message)

        self._cluster.retrying_coordinator(group, work)

    def unread_since(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Return the timestamp of the first unread record per partition (ms since the epoch).

        Partitions without unread records are left out. Unreadable partitions are left out as well.
        """
        from lakelog.client.consumer.reader import first_times  # it imports all that reads records

        return first_times(self._cluster, offsets)

    def offsets(
        self, group: str, partitions: Iterable[TopicPartition] | None = None
    ) -> dict[TopicPartition, Committed]:
        """Return the committed offsets; partitions without one are left out.

        Raises `ClientError`.
        """
        return fetch_committed(self._cluster, group, partitions, require_stable=False)

    def lag(self, group: str) -> dict[TopicPartition, Lag]:
        """Return the lag of every existing partition with a committed offset.

        Raises `ClientError`.
        """
        committed = self.offsets(group)
        topics = self._cluster.refresh({topic for topic, _ in committed}).topics
        timestamps = {
            (topic, partition): LATEST
            for topic, partition in committed
            if topic in topics and partition < len(topics[topic].partitions)
        }
        ends = list_offsets(self._cluster, timestamps)
        return {key: Lag(committed[key].offset, end.offset) for key, end in sorted(ends.items())}

    def commit(self, group: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Set the offsets of a group without members; create the group if it does not exist.

        Raises NON_EMPTY_GROUP.
        """
        try:
            rows = {key: Committed(offset) for key, offset in offsets.items()}
            commit_offsets(self._cluster, group, rows)
        except ClientError as error:
            if error.code not in _ACTIVE:
                raise
            hint = "Stop its consumers first; they would overwrite the offsets."
            text = f"group {group!r} has active members"
            raise ClientError(ErrorCode.NON_EMPTY_GROUP, text, hint=hint) from error

    def reset(
        self, group: str, partitions: Mapping[TopicPartition, int], *, dry_run: bool = False
    ) -> dict[TopicPartition, int]:
        """Set the offsets of a group without members by time; return the new offsets.

        A time is in milliseconds since the epoch, or `EARLIEST` or `LATEST`. A time after the last
        record selects the end. Raises NON_EMPTY_GROUP.
        """
        offsets_at = list_offsets(self._cluster, partitions)
        late = {key: LATEST for key, offset_at in offsets_at.items() if offset_at.offset < 0}
        offsets_at |= list_offsets(self._cluster, late) if late else {}
        offsets = {key: offset_at.offset for key, offset_at in sorted(offsets_at.items())}
        if not dry_run:
            self.commit(group, offsets)
        return offsets


def _groups_of(cluster: Cluster, node: int) -> list[GroupListing]:
    try:
        response = cluster.ask(node, messages.ListGroupsRequest(), messages.ListGroupsResponse)
    except ConnectionLostError as error:
        raise UnreachableError.after(error) from error
    check(response.error_code, f"groups of broker {node}")
    return [
        GroupListing(row.group_id, row.protocol_type, row.group_state, row.group_type)
        for row in response.groups
    ]
