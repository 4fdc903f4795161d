"""Known fetches of a follower are answered, and noted, as a broker that decodes them does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from lakelog.replica.followers import Follower
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.authentication import BROKER, Principal
from lakelog.server.connections.connection import Connection
from lakelog.wire.framing import decode_response
from twins import Client, Twins, decoded_connections, run

LEADER, FOLLOWER = 1, 2
VERSION = 18
WAIT_MS = 500


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    with decoded_connections(monkeypatch) as seen:
        yield seen


def leaders(twins: Twins) -> list[Partition]:
    return [broker.server.broker.partitions.leader("orders", 0) for broker in twins.both]


def followers(twins: Twins) -> list[Follower]:
    found = [partition.followers.get(FOLLOWER) for partition in leaders(twins)]
    return [follower for follower in found if follower is not None]


class PartitionFetcher(Client):
    """The fetches of a follower in a session, on connections of their own."""

    def __init__(self, twins: Twins, *, broker_epoch: int = 4) -> None:
        super().__init__(twins, VERSION, client_id="broker-2")
        for partition in leaders(twins):
            role = Role(partition.leader_epoch, LEADER, True, (LEADER, FOLLOWER), (FOLLOWER,))
            partition.assume(role, 0)
        self.broker_epoch = broker_epoch
        self.end = 0
        self.told = -1
        self.producer = Client(twins, 13)
        for broker in twins.both:
            broker.principal = Principal(BROKER, str(FOLLOWER))
        twins.connect()

    def ask(self, *, leader_epoch: int | None = None, last_epoch: int = -1) -> bytes:
        """Fetch from the end; return the response, or nothing if the request waits."""
        (epoch, *_) = {partition.leader_epoch for partition in leaders(self.twins)}
        entry = FetchPartition(
            partition=0,
            current_leader_epoch=epoch if leader_epoch is None else leader_epoch,
            fetch_offset=self.end,
            last_fetched_epoch=last_epoch,
            log_start_offset=0,
            partition_max_bytes=1 << 20,
        )
        topic = FetchTopic(topic_id=self.twins.topic_id, partitions=[entry])
        is_named = not self.session[0] or self.told != self.end or leader_epoch is not None
        self.told = self.end
        session_id, session_epoch = self.session
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=FOLLOWER, replica_epoch=self.broker_epoch),
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=10 << 20,
            session_id=session_id,
            session_epoch=session_epoch,
            topics=[topic] if is_named else [],
        )
        answer = self.twins.ask(self.frame(request))
        return self.take(answer) if answer else answer

    def take(self, answer: bytes) -> bytes:
        for data in self.partitions(answer):
            self.end += bytes(data.records or b"").count(b"key")
        return answer

    def partitions(self, answer: bytes) -> list[PartitionData]:
        _, response = decode_response(api_for(FetchRequest), VERSION, answer[4:])
        assert isinstance(response, FetchResponse)
        self.session = response.session_id, self.session[1] + 1
        return [data for topic in response.responses for data in topic.partitions]

    def append(self, count: int = 1, *, acks: int = 1) -> bytes:
        """Append on the other connections; return the responses there."""
        self.twins.return_to_earlier()
        producer = self.producer
        frames = (producer.produce(producer.batch(50), acks=acks) for _ in range(count))
        answer = self.twins.ask(b"".join(frames))
        self.twins.return_to_earlier()
        return answer

    def cache_request(self) -> None:
        """Copy until the requests are known."""
        for _ in range(4):
            self.append()
            self.ask()


def test_a_known_follower_gets_records_at_once_and_when_they_come(
    tmp_path: Path, decoded: list[Connection]
) -> None:
    def scenario(twins: Twins) -> None:
        copier = PartitionFetcher(twins)
        copier.cache_request()
        decoded.clear()
        for count in (1, 3):
            copier.append(count)
            assert copier.ask()
            assert not copier.ask()
            copier.append(count)
            assert copier.take(twins.take_answer())
            ends = {follower.end_offset for follower in followers(twins)}
            assert ends == {copier.end - count}, "the request noted the position"
        assert twins.quick.connection not in decoded

    run(tmp_path, scenario)


def test_a_known_fetch_commits_records(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        copier = PartitionFetcher(twins)
        copier.cache_request()
        copier.ask()
        assert not copier.append(2, acks=-1)
        copier.take(twins.take_answer())
        copier.ask()
        twins.return_to_earlier()
        assert twins.take_answer(), "both replicas have the records"
        twins.return_to_earlier()
        assert {partition.watermark.offset for partition in leaders(twins)} == {copier.end}

    run(tmp_path, scenario)


def test_a_wait_without_records_ends_with_an_answer(
    tmp_path: Path, decoded: list[Connection]
) -> None:
    def scenario(twins: Twins) -> None:
        copier = PartitionFetcher(twins)
        copier.cache_request()
        for _ in range(3):
            decoded.clear()
            assert not copier.ask()
            for broker in twins.both:
                broker.clock.now_ms += WAIT_MS
                broker.server.broker.purgatory._tick()
            copier.take(twins.take_answer())
        assert twins.quick.connection not in decoded

    run(tmp_path, scenario)


def test_a_follower_in_another_epoch_is_answered_with_the_error(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        copier = PartitionFetcher(twins)
        copier.cache_request()
        epoch = leaders(twins)[0].leader_epoch
        (data,) = copier.partitions(copier.ask(leader_epoch=epoch + 1))
        assert data.error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    run(tmp_path, scenario)


def test_an_earlier_process_of_the_follower_commits_nothing(tmp_path: Path) -> None:
    """KIP-903: its fetches may arrive after the restart that lost its records."""

    def scenario(twins: Twins) -> None:
        copier = PartitionFetcher(twins)
        copier.cache_request()
        for partition in leaders(twins):
            partition.note_fetch(FOLLOWER, copier.broker_epoch + 1, 0, 0)
        copier.append()
        (data,) = copier.partitions(copier.ask())
        assert data.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert {follower.end_offset for follower in followers(twins)} == {0}

    run(tmp_path, scenario)


def test_a_client_that_is_no_broker_is_refused_each_time(tmp_path: Path) -> None:
    """An answer from templates would skip the check, and commit records without a copy."""

    def scenario(twins: Twins) -> None:
        copier = PartitionFetcher(twins)
        copier.cache_request()
        copier.append(4)
        session, copied = copier.session, {each.end_offset for each in followers(twins)}
        for broker in twins.both:
            broker.principal = None
        twins.connect()
        for _ in range(4):
            copier.session, copier.end = session, copier.end + 1
            answer = copier.ask()
            _, response = decode_response(api_for(FetchRequest), VERSION, answer[4:])
            assert isinstance(response, FetchResponse)
            assert response.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        assert {each.end_offset for each in followers(twins)} == copied

    run(tmp_path, scenario)
