"""Reads a range of one partition exactly, in whole batches as they are stored.

For jobs that keep their own offsets: there is no group, no position, and no decoding. The next
request is in flight while the caller processes the last response.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace

from lakelog.base.closeable import Closeable
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.client.cluster import Cluster
from lakelog.client.connection import Connection
from lakelog.client.consumer.fetch import (
    Batch,
    Fetched,
    FetchTarget,
    fetch_request,
    newest_version,
    read_response,
    unserved,
)
from lakelog.client.errors import (
    ClientError,
    ConnectionLostError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    TopicRecreatedError,
    UnreachableError,
    UnreadableLogError,
    refused,
)
from lakelog.client.offsets import (
    EARLIEST,
    LATEST,
    TopicPartition,
    epoch_ends_at_once,
    list_offsets,
)
from lakelog.protocol.fetch import FetchResponse
from lakelog.records.batch import CorruptRecord
from lakelog.records.compression import MAX_DECOMPRESSED_BYTES
from lakelog.records.record import decode_records

DEFAULT_FETCH_BYTES = 4 << 20


class PartitionReader(Closeable):
    """Reads ranges of partitions.

    timeout_s: limit of a read without progress, including changes of leaders. read_committed: skip
    records of aborted transactions and stop before open ones. keep_damaged: yield a batch with a
    wrong checksum too, with a `DamagedHeader`, if a second response has it again; without bytes if
    the broker refuses to read these offsets. One thread at a time; several reads
    may be open at once. A read holds up to two responses of `max_bytes` in memory.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str = "lakelog",
        timeout_s: float = 60.0,
        max_wait_ms: int = 500,
        read_committed: bool = False,
        keep_damaged: bool = False,
    ) -> None:
        self.cluster = Cluster(bootstrap, client_id=client_id, timeout_s=timeout_s)
        self.max_wait_ms = max_wait_ms
        self.read_committed = read_committed
        self.keep_damaged = keep_damaged
        self._idle: dict[int, list[Connection]] = {}
        self._is_closed = False

    def close(self) -> None:
        """Close all connections; reads that are open fail."""
        self._is_closed = True
        self.cluster.close()
        for connections in self._idle.values():
            for connection in connections:
                connection.close()
        self._idle.clear()

    def read(
        self,
        topic: str,
        partition: int,
        start: int,
        end: int | None = None,
        *,
        max_bytes: int = DEFAULT_FETCH_BYTES,
        topic_id: bytes | None = None,
    ) -> Iterator[Batch]:
        """Yield every stored batch with an offset in [start, end), in order, checksums verified.

        The first batch may begin before `start` and the last may reach past `end`. Control batches
        are included, and offsets may have gaps. Without `end`, the read ends at the readable end of
        the first response. Each request asks for at most `max_bytes`.

        The views stay valid. Raises `OffsetOutOfRangeError` if `start` is not in the log or the log
        ends before `end`, `LogTruncatedError` if the log was cut below the position,
        `TopicRecreatedError` if the topic's id differs from `topic_id` or changes during the read,
        `UnreadableLogError` with `keep_damaged` if the batch after a damaged one cannot be found,
        and otherwise `KafkaError`.
        """
        if end is not None and end <= start:
            return
        session = _Session(self, topic, partition, max_bytes, topic_id)
        try:
            yield from session.batches(start, end)
        finally:
            session.release()

    def take(self, node_id: int) -> Connection:
        """Return a connection to a broker for one read. Raises `UnreachableError`."""
        idle = self._idle.get(node_id)
        while idle:
            connection = idle.pop()
            if not connection.is_stale:
                return connection
            connection.close()
        return self.cluster.connect(node_id)

    def give_back(self, node_id: int, connection: Connection) -> None:
        """Keep an idle connection for the next read; close any other."""
        # A read that fails may be freed, and give its connection back, after the reader is closed.
        if connection.is_open and not connection.in_flight and not self._is_closed:
            # A pending response would be matched to the request of the next read.
            self._idle.setdefault(node_id, []).append(connection)
        else:
            connection.close()


class _Session:
    """One read: its position, and the connection to the present leader."""

    def __init__(
        self,
        reader: PartitionReader,
        topic: str,
        partition: int,
        max_bytes: int,
        topic_id: bytes | None,
    ) -> None:
        self._reader = reader
        self._cluster = reader.cluster
        self._topic = topic
        self._partition = partition
        self._max_bytes = max_bytes
        self._topic_id = topic_id
        self._node_id = -1
        self._connection: Connection | None = None
        self._asked: FetchTarget | None = None
        self._last_epoch = -1
        self._end: int | None = None
        self._damaged_at = -1
        """The last requested offset whose response had a damaged batch."""
        self._refused_at = -1
        """The last requested offset that a broker refused because of damage."""

    def release(self) -> None:
        if self._connection is not None:
            self._reader.give_back(self._node_id, self._connection)
            self._connection = None
        self._asked = None

    def batches(self, position: int, end: int | None) -> Iterator[Batch]:
        self._end = end
        while end is None or position < end:
            fetched = self._fetch(position, end)
            if end is None:
                end = fetched.readable_end
            following = fetched.next_offset
            self._last_epoch = fetched.next_epoch
            if following == position and position >= end:
                return
            if following < end:
                self._ask(following)
            for header, batch in fetched.batches:
                if header.base_offset >= end:
                    return
                yield header, batch
            position = following

    def _fetch(self, position: int, end: int | None) -> Fetched:
        """Return a response that advances, or an empty one at the end of the log without `end`."""

        def attempt() -> Fetched:
            try:
                fetched = self._answer(position)
            except KafkaError:
                self._start_over()
                raise
            if fetched.next_offset > position:
                return fetched
            # Below a lagging high watermark, the offsets are not available yet rather than out of
            # range.
            if end is not None and self._ends_before(end, fetched):
                raise refused(ErrorCode.OFFSET_OUT_OF_RANGE, self._where(position))
            if end is not None or fetched.readable_end > position:
                raise refused(ErrorCode.OFFSET_NOT_AVAILABLE, self._where(position))
            return fetched

        try:
            return self._cluster.retrying(attempt)
        except LogTruncatedError:
            raise  # its code is OFFSET_OUT_OF_RANGE too, but the offset may be within the log
        except ClientError as error:
            if error.code in (ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.OFFSET_OUT_OF_RANGE):
                raise self._out_of_range(position) from error
            raise

    def _answer(self, position: int) -> Fetched:
        fetched = self._receive(position)
        if fetched.error is ErrorCode.CORRUPT_MESSAGE and self._reader.keep_damaged:
            if self._refused_at == position and self._end is not None:
                return self._unserved(fetched, self._end)
            self._refused_at = position
        if fetched.error:
            raise refused(fetched.error, self._where(position))
        if fetched.diverged is not None:
            end = fetched.diverged.end_offset
            raise LogTruncatedError(self._topic, self._partition, position, end)
        return fetched

    def _unserved(self, fetched: Fetched, end: int) -> Fetched:
        """Return a damaged batch in place of the offsets that the broker refuses to read.

        Each offset is tried, so that none is left out that can be read. Raises
        `UnreadableLogError` if that takes too long, and the errors of other responses.
        """
        first, deadline = fetched.target.offset, time.monotonic() + self._cluster.timeout_s
        following = first + 1
        # The epoch of the last record is not known any more, and a wrong one would seem to diverge.
        self._last_epoch = -1
        while following < end:
            refetched = self._receive(following)
            if refetched.error and refetched.error is not ErrorCode.CORRUPT_MESSAGE:
                raise refused(refetched.error, self._where(following))
            if not refetched.error:
                break
            if time.monotonic() >= deadline:
                text = f"the broker refuses to read the offsets {first} to {following}: damaged"
                raise UnreadableLogError(f"{self._where(first)}: {text}")
            following += 1
        batches = [unserved(first, following)]
        return replace(
            fetched, error=ErrorCode.NONE, batches=batches, next_offset=following, next_epoch=-1
        )

    def _receive(self, position: int) -> Fetched:
        """Return the response for `position`, which may be an error of the partition."""
        if self._asked is None or self._asked.offset != position:
            self._ask(position)
        target, connection = self._asked, self._connection
        assert target is not None
        assert connection is not None
        limit = self._cluster.request_timeout_s + self._reader.max_wait_ms / 1000
        try:
            response = connection.receive(limit)[1]
        except ConnectionLostError as error:
            raise UnreachableError.after(error) from error
        self._asked = None
        assert isinstance(response, FetchResponse)
        results = self._read(response, target)
        if not results:
            raise ClientError(ErrorCode.UNKNOWN_SERVER_ERROR, "the response lacks the partition")
        return results[0]

    def _read(self, response: FetchResponse, target: FetchTarget) -> list[Fetched]:
        # A second response shows that the damage did not come from the way here.
        keep = self._reader.keep_damaged and self._damaged_at == target.offset
        try:
            return read_response(response, [target], keep_damaged=keep)
        except ClientError as error:
            if error.code is ErrorCode.CORRUPT_MESSAGE:
                if keep:
                    raise UnreadableLogError(error.message) from error
                self._damaged_at = target.offset
            raise

    def _ask(self, position: int) -> None:
        """Send the request for `position` without waiting for the response."""
        target = self._target(position)
        leader = self._cluster.leader(self._topic, self._partition).node_id
        if self._connection is None or leader != self._node_id or not self._connection.is_open:
            self.release()
            self._connection = self._reader.take(leader)
            self._node_id = leader
        request = fetch_request(
            [target],
            max_wait_ms=self._reader.max_wait_ms,
            min_bytes=1,
            max_bytes=self._max_bytes,
            read_committed=self._reader.read_committed,
        )
        try:
            self._connection.send(request, newest=newest_version([target]))
        except ConnectionLostError as error:
            raise UnreachableError.after(error) from error
        self._asked = target

    def _target(self, position: int) -> FetchTarget:
        self._cluster.leader(self._topic, self._partition)
        topic = self._cluster.view.topics[self._topic]
        if self._topic_id is None:
            self._topic_id = topic.topic_id
        elif self._topic_id != topic.topic_id:
            raise TopicRecreatedError(self._topic)
        epoch = topic.partitions[self._partition].leader_epoch
        size, last_epoch = self._max_bytes, self._last_epoch
        return FetchTarget(topic, self._partition, position, size, epoch, last_epoch)

    def _start_over(self) -> None:
        """Close the connection and refresh the view, without hiding the error of the request."""
        if self._connection is not None and self._connection.in_flight:
            self._connection.close()
        self.release()
        self._cluster.refresh([self._topic])

    def _ends_before(self, end: int, fetched: Fetched) -> bool:
        """Return whether the leader's log ends before `end`.

        A high watermark below `end` does not prove it, because a new leader's high watermark lags
        behind its log (KIP-207). The end of the leader's own epoch is the end of its log.
        """
        target = fetched.target
        if fetched.readable_end >= end or target.leader_epoch < 0:
            return False
        key = self._topic, self._partition
        ends, _ = epoch_ends_at_once(self._cluster, {key: target.leader_epoch})
        return key in ends and 0 <= ends[key].end_offset < end

    def _out_of_range(self, offset: int) -> OffsetOutOfRangeError:
        key = self._topic, self._partition
        first = list_offsets(self._cluster, {key: EARLIEST})[key].offset
        last = list_offsets(self._cluster, {key: LATEST})[key].offset
        return OffsetOutOfRangeError(self._topic, self._partition, offset, first, last)

    def _where(self, position: int) -> str:
        return f"{self._topic}-{self._partition} at offset {position}"


def first_times(
    cluster: Cluster, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Return the timestamp (ms since the epoch) of the first record at or after each offset.

    Partitions without such a record, and unreadable ones, are left out. The call fetches one batch
    per partition, one partition after the other. Raises nothing for a partition that cannot be
    read.
    """
    times: dict[TopicPartition, int] = {}
    for key, offset in offsets.items():
        timestamp = _first_time(cluster, key, offset)
        if timestamp is not None:
            times[key] = timestamp
    return times


def _first_time(cluster: Cluster, key: TopicPartition, offset: int) -> int | None:
    topic, partition = key

    def work() -> tuple[FetchResponse, FetchTarget]:
        target = FetchTarget(cluster.topic(topic), partition, offset, max_bytes=1)
        request = fetch_request(
            [target], max_wait_ms=0, min_bytes=0, max_bytes=1, read_committed=False
        )
        node = cluster.leader(topic, partition).node_id
        newest = newest_version([target])
        return cluster.ask(node, request, FetchResponse, newest=newest), target

    try:
        response, target = cluster.retrying(work)
        # Not within `work`: CORRUPT_MESSAGE is retriable, and a damaged batch stays damaged.
        (fetched,) = read_response(response, [target])
        return _first_in(fetched, offset)
    except (KafkaError, CorruptRecord):
        return None


def _first_in(fetched: Fetched, offset: int) -> int | None:
    for header, batch in fetched.batches:
        for record in decode_records(batch, header, MAX_DECOMPRESSED_BYTES):
            if record.offset >= offset and not header.is_control:
                return record.timestamp
    return None
