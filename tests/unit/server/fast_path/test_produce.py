"""Repeated Produce requests are answered byte for byte as a broker without templates does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import api_for
from lakelog.protocol.produce import ProduceRequest, ProduceResponse
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.connections.connection import Connection
from lakelog.server.fast_path import produce
from lakelog.wire.framing import decode_response
from storage_kit import make_batch
from twins import Client, Twins, decoded_connections, run


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Connection]]:
    with decoded_connections(monkeypatch) as seen:
        yield seen


def test_produce_in_every_version(tmp_path: Path, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        for version in range(3, 14):
            twins.connect()
            client = Client(twins, version, producer_id=version)
            for size in (10, 100, 127, 128, 16_000, 16_300, 16_400, 100_000, 10, 10):
                answer = twins.ask(client.produce(client.batch(size)))
            _, response = decode_response(api_for(ProduceRequest), version, answer[4:])
            assert isinstance(response, ProduceResponse)
            end = 15 * (version - 3) + 9
            assert response.responses[0].partition_responses[0].base_offset == end
            twins.ask(b"".join(client.produce(client.batch(50), acks=-1) for _ in range(5)))
            assert decoded.count(twins.plain.connection) == 15
            known_again = 11 if version >= 7 else 0
            assert decoded.count(twins.quick.connection) == 15 - known_again

    run(tmp_path, scenario)


def test_a_produce_request_that_is_another_after_all(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        for version in (8, 9, 13):
            twins.connect()
            client = Client(twins, version, producer_id=version)
            for _ in range(3):
                twins.ask(client.produce(client.batch(100)))
            frame = client.produce(client.batch(100))
            at = frame.index(client.batch(100, skip=-1)[61:])
            for other in (
                frame[:-1] + b"\x01",
                frame[: at - 61 - 2] + b"\xff\x7f" + frame[at - 61 :],
                frame[: at - 61 - 2] + b"\x80\x01" + frame[at - 61 :],
                client.produce(make_batch(producer=(version, 0, 3), transactional=True)),
                client.produce(make_batch(producer=(version, 0, 9))),
                client.produce(b""),
                client.produce(None),
                client.produce(client.batch(100, skip=-1)),
            ):
                twins.ask(other)

    run(tmp_path, scenario)


def test_an_internal_topic_is_refused_every_time(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        for broker in twins.both:
            partition = broker.server.broker.partitions.leader("orders", 0)
            partition.topic = "__consumer_offsets"
        client = Client(twins, 13)
        for _ in range(4):
            answer = twins.ask(client.produce(client.batch(10)))
            _, response = decode_response(api_for(ProduceRequest), 13, answer[4:])
            assert isinstance(response, ProduceResponse)
            (result,) = response.responses[0].partition_responses
            assert result.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION

    run(tmp_path, scenario)


LEADER, FOLLOWER = 1, 2
VERSION = 13


def leaders(twins: Twins) -> list[Partition]:
    return [broker.server.broker.partitions.leader("orders", 0) for broker in twins.both]


def replicate(twins: Twins, *, min_isr: int = 2) -> None:
    """Give the partition a follower in sync, which has fetched nothing yet."""
    for partition in leaders(twins):
        role = Role(partition.leader_epoch, LEADER, True, (LEADER, FOLLOWER), (FOLLOWER,))
        partition.use_config(partition.log.config._replace(min_insync_replicas=min_isr))
        partition.assume(role, 0)


def fetched(twins: Twins, offset: int) -> bytes:
    """The follower has everything before `offset`; return the responses that this causes."""
    for partition in leaders(twins):
        partition.note_fetch(FOLLOWER, 0, offset, 0)
    return twins.take_answer()


def end(twins: Twins) -> int:
    ends = {partition.log.log_end_offset for partition in leaders(twins)}
    (found,) = ends
    return found


def known(twins: Twins) -> Client:
    """Return a client whose requests are known from now on."""
    client = Client(twins, VERSION)
    for _ in range(6):
        twins.ask(client.produce(client.batch(100), acks=-1))
        fetched(twins, end(twins))
    return client


def codes(answer: bytes, number: int) -> list[int]:
    """Return the error codes of so many responses."""
    found = []
    for _ in range(number):
        size = 4 + int.from_bytes(answer[:4], "big")
        _, response = decode_response(api_for(ProduceRequest), VERSION, answer[4:size])
        assert isinstance(response, ProduceResponse)
        found.append(response.responses[0].partition_responses[0].error_code)
        answer = answer[size:]
    assert not answer
    return found


def test_requests_that_come_together_are_answered_when_all_are_committed(
    tmp_path: Path, decoded: list[Connection]
) -> None:
    def scenario(twins: Twins) -> None:
        replicate(twins)
        client = known(twins)
        decoded.clear()
        before = end(twins)
        for count in (1, 5, produce._WAITING_MAX + 3):
            frames = b"".join(client.produce(client.batch(50), acks=-1) for _ in range(count))
            assert not twins.ask(frames)
            before += count
            assert codes(fetched(twins, before), count) == [0] * count
        assert twins.quick.connection not in decoded

    run(tmp_path, scenario)


def test_a_group_waits_in_order_behind_requests_that_wait(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        replicate(twins)
        client = known(twins)
        for _ in range(3):
            assert not twins.ask(client.produce(client.batch(50), acks=-1))
        twins.ask(client.produce(client.batch(50), acks=1))
        assert codes(fetched(twins, end(twins)), 4) == [0] * 4

    run(tmp_path, scenario)


def test_a_group_that_is_committed_in_part_is_answered_one_by_one(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        replicate(twins)
        client = known(twins)
        first = end(twins)
        twins.ask(b"".join(client.produce(client.batch(50), acks=-1) for _ in range(3)))
        for partition in leaders(twins):
            partition.watermark.offset = first + 2
        for broker in twins.both:
            broker.clock.now_ms += 1_001
            broker.server.broker.purgatory._tick()
        answer = b"".join(twins.take_answer() for _ in range(1))
        assert codes(answer, 3) == [0, 0, ErrorCode.REQUEST_TIMED_OUT]

    run(tmp_path, scenario)


def test_a_group_fails_with_its_leader_epoch(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        replicate(twins)
        client = known(twins)
        twins.ask(b"".join(client.produce(client.batch(50), acks=-1) for _ in range(3)))
        for partition in leaders(twins):
            partition.assume(Role(partition.leader_epoch + 1, FOLLOWER, False, (FOLLOWER,)), 0)
        assert codes(twins.take_answer(), 3) == [ErrorCode.NOT_LEADER_OR_FOLLOWER] * 3

    run(tmp_path, scenario)


def test_nothing_is_appended_below_min_insync_replicas(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        replicate(twins)
        client = known(twins)
        replicate(twins, min_isr=3)
        before = end(twins)
        answer = twins.ask(client.produce(client.batch(50), acks=-1))
        assert codes(answer, 1) == [ErrorCode.NOT_ENOUGH_REPLICAS]
        assert end(twins) == before

    run(tmp_path, scenario)


def test_a_group_holds_memory_until_it_is_answered_or_abandoned(tmp_path: Path) -> None:
    def scenario(twins: Twins) -> None:
        replicate(twins)
        client = known(twins)
        share = twins.quick.server.broker.request_memory.share
        for ends in (lambda: fetched(twins, end(twins)), twins.quick.connection.close):
            before = share.used
            twins.ask(client.produce(client.batch(50), acks=-1))
            assert share.used > before
            ends()
            assert share.used <= before
        assert not len(twins.quick.server.broker.purgatory)

    run(tmp_path, scenario)


def test_a_group_that_finds_no_memory_is_decoded(tmp_path: Path, decoded: list[Connection]) -> None:
    def scenario(twins: Twins) -> None:
        replicate(twins)
        client = known(twins)
        share = twins.quick.server.broker.request_memory.share
        share.bytes_max = share.used + 1
        decoded.clear()
        twins.ask(client.produce(client.batch(50), acks=-1))
        assert twins.quick.connection in decoded
        assert codes(fetched(twins, end(twins)), 1) == [0]

    run(tmp_path, scenario)
