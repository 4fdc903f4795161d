from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import pytest

from coordinator_members import GROUP, commit, commit_codes, committed, form, heartbeat, join
from group_setup import Setup, in_virtual_time, run
from lakelog.base.errors import ErrorCode, KafkaError, OutOfCapacityError
from lakelog.coordinator import shard_context
from lakelog.coordinator.group.records import OffsetCommitKey, OffsetRecord, encode_record
from lakelog.coordinator.group.shard import GroupShard
from lakelog.protocol.offsets import OffsetFetchRequest, OffsetFetchRequestGroup
from lakelog.records.batch import CorruptRecord
from lakelog.records.builder import BatchBuilder

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


NOT_COORDINATOR = ErrorCode.NOT_COORDINATOR


def _fates(*fates: str) -> Iterator[str]:
    yield from fates
    while True:
        yield "ok"


@in_virtual_time()
async def test_requests_get_load_in_progress_until_the_log_is_replayed(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 7})
    setup.coordinator.close()
    setup.coordinator = setup.new_coordinator()
    assert await commit_codes(setup, {("orders", 0): 8}) == [NOT_COORDINATOR]
    setup.log.read_barrier = asyncio.Event()
    loading = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
    await asyncio.sleep(0.1)
    assert await commit_codes(setup, {("orders", 0): 8}) == [LOADING]
    assert (await join(setup)).error_code == LOADING
    setup.log.read_barrier.set()
    await loading
    assert await committed(setup) == {("orders", 0): 7}
    assert setup.coordinator.partitions == [0]


@in_virtual_time()
async def test_a_broker_that_may_have_a_successor_refuses_requests(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 7})
    setup.log.has_lease = False
    assert await commit_codes(setup, {("orders", 0): 8}) == [NOT_COORDINATOR]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=GROUP, topics=None)])
    response = await setup.coordinator.offset_fetch(request, 9)
    assert response.groups[0].error_code == NOT_COORDINATOR
    setup.log.has_lease = True
    assert await committed(setup) == {("orders", 0): 7}


@in_virtual_time()
async def test_unloaded_while_it_loads(setup: Setup) -> None:
    setup.coordinator.close()
    setup.log.read_barrier = asyncio.Event()
    loading = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
    await asyncio.sleep(0.1)
    setup.coordinator.unload_partition(0)
    setup.log.read_barrier.set()
    await loading
    assert (await join(setup)).error_code == NOT_COORDINATOR


@in_virtual_time()
async def test_requests_during_an_append_share_the_next(setup: Setup) -> None:
    setup.log.delay_s = lambda: 0.5
    replies = [commit(setup, {("orders", 0): 0})]
    await asyncio.sleep(0.1)
    replies += [commit(setup, {("orders", 0): offset}) for offset in range(1, 100)]
    for reply in replies:
        await reply
    assert setup.log.appends == 2
    assert await committed(setup) == {("orders", 0): 99}


@in_virtual_time(batch_bytes_max=1000)
async def test_batches_stay_within_the_limit(setup: Setup) -> None:
    setup.log.delay_s = lambda: 0.5
    replies = [commit(setup, {("orders", 0): 1}, metadata="m" * 300) for _ in range(10)]
    for reply in replies:
        await reply
    assert setup.log.appends == 5
    assert max(len(batch) for batch in setup.log.batches[0]) <= 1000


@in_virtual_time()
async def test_nothing_is_visible_before_it_is_committed(setup: Setup) -> None:
    setup.log.delay_s = lambda: 2.0
    reply = commit(setup, {("orders", 0): 5})
    await asyncio.sleep(1)
    assert not reply.done()
    assert await committed(setup) == {}
    await reply
    assert await committed(setup) == {("orders", 0): 5}


@in_virtual_time()
async def test_a_refused_append_leaves_no_trace(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 5})
    setup.log.fate = _fates("refused").__next__
    codes = await commit_codes(setup, {("orders", 0): 6})
    assert codes == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
    assert await committed(setup) == {("orders", 0): 5}
    assert await commit_codes(setup, {("orders", 0): 7}) == [0]


@pytest.mark.parametrize(("fate", "offset"), [("lost", 5), ("kept", 6)])
def test_after_an_unknown_outcome_memory_equals_the_log(fate: str, offset: int) -> None:
    async def scenario(setup: Setup) -> None:
        (joined,) = await form(setup, 1)
        await commit_codes(setup, {("orders", 0): 5}, joined)
        setup.log.fate = _fates(fate).__next__
        (code,) = await commit_codes(setup, {("orders", 0): 6}, joined)
        assert ErrorCode(code).retriable
        await asyncio.sleep(0.1)
        assert await committed(setup) == {("orders", 0): offset}
        assert await heartbeat(setup, joined) == 0

    in_virtual_time()(scenario)()


@in_virtual_time()
async def test_unloading_answers_everything_that_waits(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    waiting = join(setup, protocols=(("range", b""),), version=3)
    setup.log.delay_s = lambda: 3.0
    in_flight = commit(setup, {("orders", 0): 5}, joined)
    await asyncio.sleep(1)
    queued = commit(setup, {("orders", 0): 6}, joined)
    setup.coordinator.unload_partition(0)
    assert (await waiting).error_code == NOT_COORDINATOR
    for reply in (in_flight, queued):
        assert (await reply).topics[0].partitions[0].error_code == NOT_COORDINATOR


@in_virtual_time()
async def test_loading_waits_for_an_append_of_its_own_past(setup: Setup) -> None:
    setup.log.delay_s = lambda: 3.0
    lost_sight_of = commit(setup, {("orders", 0): 5})
    await asyncio.sleep(1)
    setup.coordinator.unload_partition(0)
    await setup.coordinator.load_partition(0, 0)
    assert (await lost_sight_of).topics[0].partitions[0].error_code == NOT_COORDINATOR
    assert await committed(setup) == {("orders", 0): 5}


def test_an_append_of_a_leader_epoch_that_is_over_is_of_unknown_outcome(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(setup: Setup) -> None:
        setup.log.delay_s = lambda: 3.0
        in_flight = commit(setup, {("orders", 0): 5})
        await asyncio.sleep(1)
        setup.log.leader_epochs[0] = 1
        assert (await in_flight).topics[0].partitions[0].error_code == NOT_COORDINATOR
        await asyncio.sleep(5)
        assert setup.coordinator.partitions == [], "no epoch is continued"
        setup.log.delay_s = lambda: 0.0
        await setup.coordinator.load_partition(0, 1)
        assert await committed(setup) == {("orders", 0): 5}

    in_virtual_time()(scenario)()
    assert [each for each in caplog.records if each.levelname == "ERROR"] == []


@in_virtual_time()
async def test_loading_for_a_new_leader_epoch_replaces_the_shard(setup: Setup) -> None:
    assert await commit_codes(setup, {("orders", 0): 5}) == [0]
    (joined,) = await form(setup, 1)
    await setup.coordinator.load_partition(0, 0)
    assert await heartbeat(setup, joined) == 0, "it is loaded for this epoch"
    setup.log.leader_epochs[0] = 4
    await setup.coordinator.load_partition(0, 4)
    assert setup.coordinator.leader_epoch(0) == 4
    assert await committed(setup) == {("orders", 0): 5}


@in_virtual_time()
async def test_nothing_is_loaded_for_a_leader_epoch_that_is_over(setup: Setup) -> None:
    setup.log.leader_epochs[0] = 4
    await setup.coordinator.load_partition(0, 4)
    with pytest.raises(KafkaError):
        await setup.coordinator.load_partition(0, 3)
    assert setup.coordinator.leader_epoch(0) == 4
    assert await commit_codes(setup, {("orders", 0): 5}) == [0]


@in_virtual_time()
async def test_a_load_that_ends_after_its_epoch_leaves_the_next_one_alone(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 5})
    setup.coordinator.close()
    setup.log.read_barrier = asyncio.Event()
    first = asyncio.ensure_future(setup.coordinator.load_partition(0, 0))
    await asyncio.sleep(0.1)
    setup.log.leader_epochs[0] = 1
    second = asyncio.ensure_future(setup.coordinator.load_partition(0, 1))
    await asyncio.sleep(0.1)
    setup.log.read_barrier.set()
    await first
    await second
    assert setup.coordinator.leader_epoch(0) == 1
    assert await committed(setup) == {("orders", 0): 5}


@in_virtual_time()
async def test_a_record_that_cannot_be_encoded_fails_alone(setup: Setup) -> None:
    """A lone surrogate cannot be encoded. No client can send one; it stands for any such bug."""
    setup.log.delay_s = lambda: 1.0
    in_flight = commit(setup, {("orders", 0): 5})
    await asyncio.sleep(0.1)
    unwritable = commit(setup, {("orders", 1): 6}, metadata="\ud800")
    queued = commit(setup, {("orders", 2): 7})
    codes = [
        (await reply).topics[0].partitions[0].error_code
        for reply in (unwritable, in_flight, queued)
    ]
    assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR, 0, 0]
    assert await commit_codes(setup, {("orders", 1): 8}) == [0]
    assert await committed(setup) == {("orders", 0): 5, ("orders", 1): 8, ("orders", 2): 7}


@pytest.mark.parametrize("step", ["_batch", "_append"])
def test_the_shard_is_reloaded_after_a_memory_error(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = shard_context.ShardContext._append

    async def append_and_fail(*arguments: Any) -> bool:
        await append(*arguments)
        raise MemoryError("injected")

    def fail(*_: object) -> None:
        raise MemoryError("injected")

    async def scenario(setup: Setup) -> None:
        (joined,) = await form(setup, 1)
        assert await commit_codes(setup, {("orders", 0): 5}, joined) == [0]
        setup.log.delay_s = lambda: 1.0
        with monkeypatch.context() as patch:
            patch.setattr(
                shard_context.ShardContext, step, fail if step == "_batch" else append_and_fail
            )
            replies = [commit(setup, {("orders", n): 6}, joined) for n in range(3)]
            for reply in replies:
                (code,) = [each.error_code for each in (await reply).topics[0].partitions]
                assert code != 0
        await asyncio.sleep(5)
        assert await commit_codes(setup, {("orders", 7): 8}, joined) == [0]
        written = {("orders", n): 6 for n in range(3)}
        kept = {("orders", 0): 5} if step == "_batch" else written
        assert await committed(setup) == {**kept, ("orders", 7): 8}
        assert await heartbeat(setup, joined) == 0

    in_virtual_time()(scenario)()
    assert [each.exc_info is not None for each in caplog.records if each.levelname == "ERROR"]


@in_virtual_time()
async def test_a_caller_that_has_gone_away_does_no_harm(setup: Setup) -> None:
    setup.log.delay_s = lambda: 1.0
    reply = commit(setup, {("orders", 0): 5})
    reply.cancel()  # type: ignore[attr-defined]
    await commit_codes(setup, {("orders", 1): 6})
    assert await committed(setup) == {("orders", 0): 5, ("orders", 1): 6}


@in_virtual_time()
async def test_a_clock_set_forward_ends_no_session(setup: Setup) -> None:
    (joined,) = await form(setup, 1)
    setup.clock.leap(3_600_000)
    await asyncio.sleep(5)
    assert await heartbeat(setup, joined) == 0


@in_virtual_time()
async def test_a_full_disk_fails_requests_and_keeps_the_shard(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 5})
    shard = setup.coordinator._host.shard(0)
    append, full = setup.log.append, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    async def failing(partition: int, batch: bytearray) -> int:
        raise OutOfCapacityError(full)

    setup.log.append = failing  # type: ignore[method-assign]
    assert await commit_codes(setup, {("orders", 0): 6}) == [ErrorCode.NOT_COORDINATOR]
    setup.log.append = append  # type: ignore[method-assign]
    assert setup.coordinator._host.shard(0) is shard
    assert await committed(setup) == {("orders", 0): 5}
    assert await commit_codes(setup, {("orders", 0): 7}) == [ErrorCode.NONE]


@in_virtual_time()
async def test_an_unreadable_partition_is_not_served(setup: Setup) -> None:
    await commit_codes(setup, {("orders", 0): 5})
    damaged = bytearray(setup.log.batches[0][0])
    damaged[-1] ^= 1
    setup.log.batches[0][0] = bytes(damaged)
    setup.coordinator.close()
    with pytest.raises(CorruptRecord):
        await setup.coordinator.load_partition(0, 0)
    assert (await join(setup)).error_code == NOT_COORDINATOR


@in_virtual_time()
async def test_a_failing_disk_while_loading_is_the_callers_to_know(setup: Setup) -> None:
    setup.coordinator.close()

    async def start_offset(partition: int) -> int:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    setup.log.start_offset = start_offset  # type: ignore[method-assign]
    with pytest.raises(KafkaError):
        await setup.coordinator.load_partition(0, 0)
    assert setup.coordinator.partitions == []


@in_virtual_time()
async def test_records_of_other_kinds_and_tombstones_are_replayed_in_order(
    setup: Setup,
) -> None:
    await commit_codes(setup, {("orders", 0): 5, ("orders", 1): 6})
    key = OffsetCommitKey(group="readers", topic="orders", partition=0)
    builder = BatchBuilder()
    builder.append(1, b"\x00\x63unknown", b"\x00\x00")
    builder.append(1, *encode_record(OffsetRecord(key, None)))
    await setup.log.append(0, builder.build())
    await setup.restart()
    assert await committed(setup) == {("orders", 1): 6}


def fail_reads(setup: Setup, times: int, error: Exception) -> None:
    """Have the next reads of the log fail."""
    failures, read = iter([True] * times), setup.log.read

    async def failing(partition: int, offset: int) -> bytes:
        if next(failures, False):
            raise error
        return await read(partition, offset)

    setup.log.read = failing  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("error", "name"),
    [
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), "coordinator_load_failed"),
        (RuntimeError("planted"), "task_failed"),
    ],
    ids=["disk", "bug"],
)
def test_a_partition_is_loaded_again_until_it_works(
    error: Exception, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The disk is full, no descriptor is left, or no code expects the exception."""

    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {("orders", 0): 5})
        fail_reads(setup, 5, error)
        setup.log.fate = chain(["lost"], repeat("ok")).__next__
        await commit_codes(setup, {("orders", 0): 6})
        assert setup.coordinator.partitions == []
        await asyncio.sleep(10)
        assert setup.coordinator.partitions == [0]
        assert await committed(setup) == {("orders", 0): 5}

    run(scenario)
    names = [each.__dict__["event"] for each in caplog.records]
    assert names == ["coordinator_append_failed", name], "one line for all attempts"


def test_a_first_load_that_fails_unexpectedly_is_repeated(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {("orders", 0): 5})
        setup.coordinator.unload_partition(0)
        fail_reads(setup, 3, RuntimeError("planted"))
        await setup.coordinator.load_partition(0, 1)
        assert setup.coordinator.partitions == []
        await asyncio.sleep(10)
        assert await committed(setup) == {("orders", 0): 5}

    run(scenario)
    assert [each.__dict__["event"] for each in caplog.records] == ["task_failed"]


def test_a_load_whose_begin_fails_unexpectedly_is_repeated(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Without its timers, the shard would end no session and no transaction."""

    async def scenario(setup: Setup) -> None:
        await commit_codes(setup, {("orders", 0): 5})
        setup.coordinator.unload_partition(0)
        with monkeypatch.context() as planted:
            planted.setattr(GroupShard, "loaded", lambda *_: 1 / 0)
            await setup.coordinator.load_partition(0, 1)
            assert setup.coordinator.partitions == []
        await asyncio.sleep(10)
        assert await committed(setup) == {("orders", 0): 5}

    run(scenario)


@in_virtual_time()
async def test_loads_that_fail_in_turn_have_one_retry(setup: Setup) -> None:
    setup.coordinator.unload_partition(0)
    fail_reads(setup, 100, RuntimeError("planted"))
    for _ in range(3):
        await setup.coordinator.load_partition(0, 1)
    loads = 0

    async def count(partition: int, leader_epoch: int) -> None:
        nonlocal loads
        loads += 1

    setup.coordinator._host._reloads._load = count
    await asyncio.sleep(10)
    assert loads == 1


@in_virtual_time()
async def test_a_partition_that_is_unloaded_is_not_loaded_again(setup: Setup) -> None:
    async def failing(partition: int, offset: int) -> bytes:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    read, setup.log.read = setup.log.read, failing  # type: ignore[method-assign]
    setup.log.fate = chain(["lost"], repeat("ok")).__next__
    await commit_codes(setup, {("orders", 0): 6})
    await asyncio.sleep(0.5)
    setup.coordinator.close()
    setup.log.read = read  # type: ignore[method-assign]
    await asyncio.sleep(10)
    assert setup.coordinator.partitions == []
