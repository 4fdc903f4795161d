"""Reads of partitions: requests, and checks of responses as a consumer decodes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakelog.base.errors import ErrorCode
from lakelog.protocol.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from lakelog.records.batch import check_crc, iter_batches
from lakelog.records.control import read_marker
from lakelog.records.record import Record, decode_records
from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.checkers.record_history import RecordHistory

if TYPE_CHECKING:
    from simulator.clients.client import Client

FETCH_VERSION = 12
EARLIEST, LATEST = -2, -1
_DECODED_MAX = 1 << 20


def fetch_request(
    partition: Place, offset: int, *, committed: bool, max_bytes: int, max_wait_ms: int
) -> FetchRequest:
    wanted = FetchPartition(
        partition=partition[1], fetch_offset=offset, partition_max_bytes=max_bytes
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        topics=[FetchTopic(topic=partition[0], partitions=[wanted])],
    )


@dataclass(slots=True)
class FetchedRecords:
    """The records of one response: values with their offsets, and the next offset to fetch."""

    values: list[tuple[int, bytes]]
    next_offset: int


def check_fetched(
    history: RecordHistory, partition: Place, offset: int, answer: Any, *, committed: bool
) -> FetchedRecords:
    """Check the batches in a response to a fetch from `offset`, and decode them.

    `committed` is the isolation level read_committed: records of aborted transactions are left out.
    Offsets of the result are exclusive ends. Raises `CorruptRecord` for a batch whose records
    cannot be decoded.
    """
    aborted = sorted(
        (entry.first_offset, entry.producer_id) for entry in answer.aborted_transactions or ()
    )
    gone: set[int] = set()
    values: list[tuple[int, bytes]] = []
    at, compacted = offset, history.partition(partition).compacted
    for header, batch in iter_batches(answer.records or b""):
        if not check_crc(batch, 0, header):
            history.findings.violation(
                Law.INTACT, f"{partition}: the broker served a damaged batch at {at}"
            )
            return FetchedRecords(values, header.last_offset + 1)
        history.findings.expect(
            Law.ADJACENT,
            (header.base_offset <= at or compacted) and header.last_offset >= at,
            f"{partition}: after {at} came the batch {header.base_offset} to {header.last_offset}",
        )
        at = header.last_offset + 1
        history.note_epoch(partition, header.last_offset, header.partition_leader_epoch)
        while aborted and aborted[0][0] <= header.last_offset:
            gone.add(aborted.pop(0)[1])
        if header.is_control:
            marker = read_marker(batch, header)
            if marker is not None and not marker.commit:
                # The marker ends this transaction; the producer's next one is listed by itself.
                gone.discard(header.producer_id)
            continue
        if committed and header.is_transactional and header.producer_id in gone:
            continue
        for record in decode_records(batch, header, _DECODED_MAX):
            if record.offset >= offset:
                values.append((record.offset, _name(record)))
    if committed:
        history.findings.expect(
            Law.BELOW_STABLE,
            at <= max(answer.last_stable_offset, offset),
            f"{partition}: read up to {at}, beyond the last stable offset "
            f"{answer.last_stable_offset}",
        )
    history.findings.expect(
        Law.BELOW_WATERMARK,
        at <= max(answer.high_watermark, offset),
        f"{partition}: read up to {at}, beyond the high watermark {answer.high_watermark}",
    )
    return FetchedRecords(values, at)


def _name(record: Record) -> bytes:
    """Return the value, or for a tombstone the content of its header."""
    if record.value is not None:
        return bytes(record.value)
    (header,) = record.headers
    return bytes(header[1] or b"")


def is_damaged(client: Client, partition: Place, offset: int) -> bool:
    """Return whether CORRUPT_MESSAGE is right at this offset."""
    client.findings.counts["damaged batches reported"] += 1
    return client.history.partition(partition).is_hidden(offset)


async def list_offset(client: Client, partition: Place, timestamp: int, *, committed: bool) -> int:
    """Return the offset of a timestamp, `EARLIEST` or `LATEST`; retry until there is one."""
    wanted = ListOffsetsPartition(partition_index=partition[1], timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed),
        topics=[ListOffsetsTopic(name=partition[0], partitions=[wanted])],
    )
    while True:
        answer = (await client.ask(request, 7)).topics[0].partitions[0]
        if answer.error_code == 0:
            offset: int = answer.offset
            return offset
        await client.pause(0.1, 0.5)


async def read_all(client: Client, partition: Place, *, committed: bool) -> dict[int, bytes]:
    """Return all values of a partition by offset, from its start to its current end."""
    at = await list_offset(client, partition, EARLIEST, committed=committed)
    end = await list_offset(client, partition, LATEST, committed=committed)
    client.history.begins(partition, at)
    found: dict[int, bytes] = {}
    while at < end:
        request = fetch_request(
            partition, at, committed=committed, max_bytes=1 << 20, max_wait_ms=100
        )
        answer = (await client.ask(request, FETCH_VERSION)).responses[0].partitions[0]
        if answer.error_code == ErrorCode.CORRUPT_MESSAGE and is_damaged(client, partition, at):
            at += 1
            continue
        if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            await client.pause(0.1, 0.5)
            continue
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = await list_offset(client, partition, EARLIEST, committed=committed)
            client.history.begins(partition, start)
            if at < start:
                at = start  # retention was faster
                continue
        if answer.error_code != 0:
            client.unexpected(f"a full read of {partition} at {at}", answer.error_code)
            break
        fetched = check_fetched(client.history, partition, at, answer, committed=committed)
        if fetched.next_offset == at:
            client.findings.violation(
                Law.READABLE, f"{partition}: nothing at {at}, though it ends at {end}"
            )
            break
        found.update(fetched.values)
        at = fetched.next_offset
    return found
