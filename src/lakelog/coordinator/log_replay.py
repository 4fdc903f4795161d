"""Replays a partition's log into a new shard, and lets the event loop run between reads."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakelog.coordinator.shard import PartitionLog, Shard
from lakelog.records.batch import BatchHeader, check_crc, iter_batches
from lakelog.records.errors import CorruptRecord
from lakelog.records.record import decode_records
from lakelog.runtime.api import Tasks

_BATCH_BYTES_MAX = 64 << 20
"""Largest size that one batch may have when it is decompressed."""
_ABORT, _COMMIT = b"\x00\x00", b"\x00\x01"
"""Types of a control record; they follow the version in its key."""


async def replay_log(
    log: PartitionLog,
    tasks: Tasks,
    topic: str,
    partition: int,
    shard: Shard[Any],
    is_dropped: Callable[[], bool],
) -> None:
    """Replay all committed records of a partition in the order of their offsets.

    Returns early once the shard is dropped. Raises `KafkaError` or `OSError` if the log cannot be
    read, `CorruptRecord` for a batch with a wrong CRC, `WireError` for a malformed record.
    """
    offset = await log.start_offset()
    while not is_dropped():
        data = await log.read(offset)
        if not data:
            return
        previous = offset
        for header, batch in iter_batches(data):
            if not check_crc(batch, 0, header):
                raise CorruptRecord(f"{topic}-{partition}: bad CRC at {offset}")
            _replay_batch(shard, header, batch, offset)
            offset = header.last_offset + 1
        if offset == previous:
            raise CorruptRecord(f"{topic}-{partition} returned no batch at {offset}")
        await _yield_to_loop(tasks)


def _replay_batch(shard: Shard[Any], header: BatchHeader, batch: memoryview, offset: int) -> None:
    for record in decode_records(batch, header, _BATCH_BYTES_MAX):
        if record.offset < offset or record.key is None:
            continue
        if header.is_control:
            _replay_control(shard, header.producer_id, record.key)
        elif (decoded := shard.decode(record.key, record.value)) is None:
            continue
        elif header.is_transactional:
            shard.replay_pending(decoded, header.producer_id)
        else:
            shard.replay(decoded)


def _replay_control(shard: Shard[Any], producer_id: int, key: bytes) -> None:
    """Other control records (a leader change, a snapshot's head) do not concern coordinators."""
    kind = key[2:4]
    if kind in (_ABORT, _COMMIT):
        shard.replay_end(producer_id, commit=kind == _COMMIT)


async def _yield_to_loop(tasks: Tasks) -> None:
    turn = tasks.future()
    tasks.call_soon(turn.set_result, None)
    await turn
