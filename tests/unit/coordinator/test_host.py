from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from typing import Any

import pytest

from coordinator_members import commit, commit_codes, committed, form, heartbeat, join
from coordinator_world import World, in_world
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.base.shortage import OutOfRoomError
from lakelog.coordinator import host
from lakelog.coordinator.group.records.codec import encode_record
from lakelog.coordinator.group.records.offset import OffsetCommitKey, OffsetRecord
from lakelog.records.builder import BatchBuilder
from lakelog.records.errors import CorruptRecord

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


def _fates(*fates: str) -> Iterator[str]:
    yield from fates
    while True:
        yield "ok"


@in_world()
async def test_requests_get_load_in_progress_until_the_log_is_replayed(world: World) -> None:
    await commit_codes(world, {("orders", 0): 7})
    world.coordinator.close()
    world.coordinator = world.new_coordinator()
    assert await commit_codes(world, {("orders", 0): 8}) == [NOT_COORDINATOR]
    world.log.read_gate = asyncio.Event()
    loading = asyncio.ensure_future(world.coordinator.load_partition(0))
    await asyncio.sleep(0.1)
    assert await commit_codes(world, {("orders", 0): 8}) == [LOADING]
    assert (await join(world)).error_code == LOADING
    world.log.read_gate.set()
    await loading
    assert await committed(world) == {("orders", 0): 7}
    assert world.coordinator.partitions == [0]


@in_world()
async def test_unloaded_while_it_loads(world: World) -> None:
    world.coordinator.close()
    world.log.read_gate = asyncio.Event()
    loading = asyncio.ensure_future(world.coordinator.load_partition(0))
    await asyncio.sleep(0.1)
    world.coordinator.unload_partition(0)
    world.log.read_gate.set()
    await loading
    assert (await join(world)).error_code == NOT_COORDINATOR


@in_world()
async def test_requests_during_an_append_share_the_next(world: World) -> None:
    world.log.delay_s = lambda: 0.5
    replies = [commit(world, {("orders", 0): 0})]
    await asyncio.sleep(0.1)
    replies += [commit(world, {("orders", 0): offset}) for offset in range(1, 100)]
    for reply in replies:
        await reply
    assert world.log.appends == 2
    assert await committed(world) == {("orders", 0): 99}


@in_world(batch_bytes_max=1000)
async def test_batches_stay_within_the_limit(world: World) -> None:
    world.log.delay_s = lambda: 0.5
    replies = [commit(world, {("orders", 0): 1}, metadata="m" * 300) for _ in range(10)]
    for reply in replies:
        await reply
    assert world.log.appends == 5
    assert max(len(batch) for batch in world.log.batches[0]) <= 1000


@in_world()
async def test_nothing_is_visible_before_it_is_committed(world: World) -> None:
    world.log.delay_s = lambda: 2.0
    reply = commit(world, {("orders", 0): 5})
    await asyncio.sleep(1)
    assert not reply.done()
    assert await committed(world) == {}
    await reply
    assert await committed(world) == {("orders", 0): 5}


@in_world()
async def test_a_refused_append_leaves_no_trace(world: World) -> None:
    await commit_codes(world, {("orders", 0): 5})
    world.log.fate = _fates("refused").__next__
    codes = await commit_codes(world, {("orders", 0): 6})
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert await committed(world) == {("orders", 0): 5}
    assert await commit_codes(world, {("orders", 0): 7}) == [0]


@pytest.mark.parametrize(("fate", "offset"), [("lost", 5), ("kept", 6)])
def test_after_an_unknown_outcome_memory_equals_the_log(fate: str, offset: int) -> None:
    async def scenario(world: World) -> None:
        (joined,) = await form(world, 1)
        await commit_codes(world, {("orders", 0): 5}, joined)
        world.log.fate = _fates(fate).__next__
        (code,) = await commit_codes(world, {("orders", 0): 6}, joined)
        assert ErrorCode(code).retriable
        await asyncio.sleep(0.1)
        assert await committed(world) == {("orders", 0): offset}
        assert await heartbeat(world, joined) == 0

    in_world()(scenario)()


@in_world()
async def test_unloading_answers_everything_that_waits(world: World) -> None:
    (joined,) = await form(world, 1)
    waiting = join(world, protocols=(("range", b""),), version=3)
    world.log.delay_s = lambda: 3.0
    in_flight = commit(world, {("orders", 0): 5}, joined)
    await asyncio.sleep(1)
    queued = commit(world, {("orders", 0): 6}, joined)
    world.coordinator.unload_partition(0)
    assert (await waiting).error_code == NOT_COORDINATOR
    for reply in (in_flight, queued):
        assert (await reply).topics[0].partitions[0].error_code == NOT_COORDINATOR


@in_world()
async def test_loading_waits_for_an_append_of_its_own_past(world: World) -> None:
    world.log.delay_s = lambda: 3.0
    lost_sight_of = commit(world, {("orders", 0): 5})
    await asyncio.sleep(1)
    world.coordinator.unload_partition(0)
    await world.coordinator.load_partition(0)
    assert (await lost_sight_of).topics[0].partitions[0].error_code == NOT_COORDINATOR
    assert await committed(world) == {("orders", 0): 5}


@in_world()
async def test_an_unreadable_partition_is_not_served(world: World) -> None:
    await commit_codes(world, {("orders", 0): 5})
    damaged = bytearray(world.log.batches[0][0])
    damaged[-1] ^= 1
    world.log.batches[0][0] = bytes(damaged)
    world.coordinator.close()
    with pytest.raises(CorruptRecord):
        await world.coordinator.load_partition(0)
    assert (await join(world)).error_code == NOT_COORDINATOR


@in_world()
async def test_a_failing_disk_while_loading_is_the_callers_to_know(world: World) -> None:
    world.coordinator.close()

    async def start_offset(partition: int) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    world.log.start_offset = start_offset  # type: ignore[method-assign]
    with pytest.raises(KafkaError):
        await world.coordinator.load_partition(0)
    assert world.coordinator.partitions == []


@in_world()
async def test_after_a_storage_error_a_partition_is_loaded_again_until_it_works(
    world: World,
) -> None:
    """The reload is retried while the disk is full or no descriptor is left."""
    await commit_codes(world, {("orders", 0): 5})
    failures = iter([True] * 5)
    read = world.log.read

    async def failing(partition: int, offset: int) -> bytes:
        if next(failures, False):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        return await read(partition, offset)

    world.log.read = failing  # type: ignore[method-assign]
    world.log.fate = _fates("lost").__next__
    await commit_codes(world, {("orders", 0): 6})
    assert world.coordinator.partitions == []
    await asyncio.sleep(10)
    assert world.coordinator.partitions == [0]
    assert await committed(world) == {("orders", 0): 5}


@in_world()
async def test_a_partition_that_is_unloaded_is_not_loaded_again(world: World) -> None:
    async def failing(partition: int, offset: int) -> bytes:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    read, world.log.read = world.log.read, failing  # type: ignore[method-assign]
    world.log.fate = _fates("lost").__next__
    await commit_codes(world, {("orders", 0): 6})
    await asyncio.sleep(0.5)
    world.coordinator.close()
    world.log.read = read  # type: ignore[method-assign]
    await asyncio.sleep(10)
    assert world.coordinator.partitions == []


@in_world()
async def test_records_of_other_kinds_and_tombstones_are_replayed_in_order(world: World) -> None:
    await commit_codes(world, {("orders", 0): 5, ("orders", 1): 6})
    key = OffsetCommitKey(group="readers", topic="orders", partition=0)
    builder = BatchBuilder()
    builder.append(1, b"\x00\x63unknown", b"\x00\x00")
    builder.append(1, *encode_record(OffsetRecord(key, None)))
    await world.log.append(0, builder.build())
    await world.restart()
    assert await committed(world) == {("orders", 1): 6}


@in_world()
async def test_a_record_that_cannot_be_encoded_fails_alone(world: World) -> None:
    """A lone surrogate cannot be encoded. No client can send one; it stands for any such bug."""
    world.log.delay_s = lambda: 1.0
    in_flight = commit(world, {("orders", 0): 5})
    await asyncio.sleep(0.1)
    unwritable = commit(world, {("orders", 1): 6}, metadata="\ud800")
    queued = commit(world, {("orders", 2): 7})
    codes = [
        (await reply).topics[0].partitions[0].error_code
        for reply in (unwritable, in_flight, queued)
    ]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0]
    assert await commit_codes(world, {("orders", 1): 8}) == [0]
    assert await committed(world) == {("orders", 0): 5, ("orders", 1): 8, ("orders", 2): 7}


@pytest.mark.parametrize("step", ["_batch", "_replay_result"])
def test_the_shard_is_reloaded_after_a_memory_error(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise MemoryError("injected")

    async def scenario(world: World) -> None:
        (joined,) = await form(world, 1)
        assert await commit_codes(world, {("orders", 0): 5}, joined) == [0]
        world.log.delay_s = lambda: 1.0
        with monkeypatch.context() as patch:
            owner: Any = host.ShardHost if step == "_batch" else host
            patch.setattr(owner, step, fail)
            replies = [commit(world, {("orders", n): 6}, joined) for n in range(3)]
            for reply in replies:
                (code,) = [each.error_code for each in (await reply).topics[0].partitions]
                assert code != 0
        await asyncio.sleep(5)
        assert await commit_codes(world, {("orders", 7): 8}, joined) == [0]
        written = {("orders", n): 6 for n in range(3)}
        kept = {("orders", 0): 5} if step == "_batch" else written
        assert await committed(world) == {**kept, ("orders", 7): 8}
        assert await heartbeat(world, joined) == 0

    in_world()(scenario)()
    assert [each.exc_info is not None for each in caplog.records if each.levelname == "ERROR"]


@in_world()
async def test_a_caller_that_has_gone_away_does_no_harm(world: World) -> None:
    world.log.delay_s = lambda: 1.0
    reply = commit(world, {("orders", 0): 5})
    reply.cancel()  # type: ignore[attr-defined]
    await commit_codes(world, {("orders", 1): 6})
    assert await committed(world) == {("orders", 0): 5, ("orders", 1): 6}


@in_world()
async def test_a_clock_set_forward_ends_no_session(world: World) -> None:
    (joined,) = await form(world, 1)
    world.clock.leap(3_600_000)
    await asyncio.sleep(5)
    assert await heartbeat(world, joined) == 0


@in_world()
async def test_a_full_disk_fails_requests_and_keeps_the_shard(world: World) -> None:
    await commit_codes(world, {("orders", 0): 5})
    shard = world.coordinator._host.shard(0)
    append, full = world.log.append, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def failing(partition: int, batch: bytearray) -> int:
        raise OutOfRoomError(full)

    world.log.append = failing  # type: ignore[method-assign]
    assert await commit_codes(world, {("orders", 0): 6}) == [ErrorCode.NOT_COORDINATOR]
    world.log.append = append  # type: ignore[method-assign]
    assert world.coordinator._host.shard(0) is shard
    assert await committed(world) == {("orders", 0): 5}
    assert await commit_codes(world, {("orders", 0): 7}) == [ErrorCode.NONE]
