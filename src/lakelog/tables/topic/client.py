"""Requests of the table engine to a cluster: topics, offsets, leader epochs, record batches.

This module translates the client's errors into `errors.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from lakelog.base.closeable import Closeable
from lakelog.base.errors import ErrorCode
from lakelog.base.uuids import decode_uuid, encode_uuid
from lakelog.client.consumer.fetch import Batch
from lakelog.client.consumer.reader import DEFAULT_FETCH_BYTES, PartitionReader
from lakelog.client.errors import (
    ClientError,
    LogTruncatedError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from lakelog.client.offsets import EARLIEST, LATEST, EpochEnd, OffsetAt, epoch_ends, list_offsets
from lakelog.client.view import Topic
from lakelog.tables.topic.errors import (
    DataLossError,
    LogReplacedError,
    TopicGoneError,
    TopicMissingError,
)
from lakelog.tables.topic.offsets import OffsetRange, TopicPartition

T = TypeVar("T")

_SAMPLE_BYTES = 64 << 10
_NO_CONFIGS = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """A topic of the cluster. `topic_id` is text, as in stored offsets and in tables."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


class TopicClient(Closeable):
    """A client of one cluster. Methods raise `KafkaError` unless they state another error.

    read_committed: skip records of aborted transactions; the latest offset is then the start of the
    first open transaction. timeout_s: the limit for each operation, and for a read that makes no
    progress. request_timeout_s: the limit for one request. fetch_bytes, fetch_wait_ms: limits of
    one response, and of the wait for its first record. keep_damaged: yield batches with a wrong
    checksum too; see `PartitionReader`. awaits_cluster: retry the first contact too, until
    `timeout_s`; without it a wrong address fails at once. Raises `AddressError` for a malformed
    `bootstrap`.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        read_committed: bool = True,
        timeout_s: float = 60.0,
        request_timeout_s: float = 30.0,
        fetch_bytes: int = DEFAULT_FETCH_BYTES,
        fetch_wait_ms: int = 500,
        keep_damaged: bool = False,
        awaits_cluster: bool = False,
    ) -> None:
        self._awaits_cluster = awaits_cluster
        self._reader = PartitionReader(
            bootstrap,
            client_id=client_id,
            read_committed=read_committed,
            timeout_s=timeout_s,
            max_wait_ms=fetch_wait_ms,
            keep_damaged=keep_damaged,
        )
        self._fetch_bytes = fetch_bytes
        self._cluster = self._reader.cluster
        self._cluster.request_timeout_s = min(request_timeout_s, timeout_s)

    def close(self) -> None:
        self._reader.close()

    @property
    def is_read_committed(self) -> bool:
        """Whether records of aborted and of open transactions are skipped."""
        return self._reader.read_committed

    def topics(self) -> dict[str, TopicMeta]:
        """Return all topics by name, without internal ones.

        Raises `KafkaError` if no broker answers.
        """
        topics = self._retrying(self._cluster.refresh).topics
        return {name: _meta(topic) for name, topic in topics.items() if not topic.is_internal}

    def find(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        """Return the present state of the topics that exist.

        Raises `KafkaError` if no broker answers.
        """
        topics = list(names)
        self._retrying(lambda: self._cluster.refresh(topics))
        metas = {}
        for name in topics:
            with suppress(TopicNotFoundError):
                metas[name] = _meta(self._cluster.topic(name))
        return metas

    def missing_text(self, name: str) -> str:
        """Return the error text for a missing topic, with a similar name if there is one."""
        try:
            self._cluster.topic(name)
        except TopicNotFoundError as error:
            return f"{error.message}. {error.hint}".rstrip(". ")
        return f"topic {name!r} did not exist a moment ago"

    def describe(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        """Return the present state of all the topics. Raises `TopicMissingError`."""
        topics = list(names)
        metas = self.find(topics)
        for name in topics:
            if name not in metas:
                raise TopicMissingError(self.missing_text(name))
        return metas

    def configs(
        self, names: Iterable[str], keys: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        """Return the values of some keys of each existing topic, without unknown keys.

        A cluster that denies the request has no such keys for this client.
        """
        # Only planners ask for them; see `test_imports.py` for workers.
        from lakelog.client.admin.configs import Configs, ResourceType

        configs = Configs(self._cluster)
        by_topic: dict[str, dict[str, str | None]] = {}
        for name in names:
            ask = partial(configs.describe, ResourceType.TOPIC, name, keys=keys)
            try:
                entries = self._retrying(ask)
            except ClientError as error:
                if error.code not in _NO_CONFIGS:
                    raise
                continue
            by_topic[name] = {key: entry.value for key, entry in entries.items()}
        return by_topic

    def places(self, timestamps: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """Return the first offset at or after each time (milliseconds since the epoch).

        The offset is -1 if there is no such record. `EARLIEST` stands for the start of a partition,
        `LATEST` for the end of its readable part. This method and all below it raise
        `TopicMissingError` for a topic that was deleted meanwhile.
        """
        with _naming_missing():
            return self._list(timestamps, read_committed=self._reader.read_committed)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the start offset of each partition.

        Raises as `places`.
        """
        return _offsets(self.places(dict.fromkeys(partitions, EARLIEST)))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last readable record of each partition.

        Raises as `places`. With read_committed that is the last stable offset.
        """
        return _offsets(self.latest_places(partitions))

    def latest_places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAt]:
        """Return `latest` with leader epochs: no record below an offset has a later epoch.

        Raises as `places` (KIP-320).
        """
        return self.places(dict.fromkeys(partitions, LATEST))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Return where the given leader epoch of each partition ends in the present log.

        Raises `TopicMissingError`, and `KafkaError` if a leader does not answer (KIP-320).
        """
        with _naming_missing():
            return epoch_ends(self._cluster, epochs) if epochs else {}

    def log_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record, including open transactions.

        Raises as `epoch_ends`.
        """
        with _naming_missing():
            return _offsets(self._list(dict.fromkeys(partitions, LATEST), read_committed=False))

    def batches(self, offset_range: OffsetRange) -> Iterator[Batch]:
        """Yield the batches that contain an offset of the range, in order, without control batches.

        Raises `DataLossError` if the log no longer has the range: `TopicGoneError` if the topic was
        deleted or replaced, and `LogReplacedError` at the first batch with a later leader epoch
        than that of the range.
        """
        topic_id = decode_uuid(offset_range.topic_id) if offset_range.topic_id else None
        epoch = offset_range.leader_epoch
        with _naming_losses(str(offset_range)):
            for header, batch in self._reader.read(
                offset_range.topic,
                offset_range.partition,
                offset_range.start,
                offset_range.end,
                max_bytes=self._fetch_bytes,
                topic_id=topic_id,
            ):
                if 0 <= epoch < header.partition_leader_epoch:
                    raise LogReplacedError(
                        f"{offset_range}: the log was cut at or before offset {header.base_offset} "
                        f"and grew again, in leader epoch {header.partition_leader_epoch} instead "
                        f"of {epoch}"
                    )
                if not header.is_control:
                    yield header, batch

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        """Estimate the bytes of log per offset from the first 64 KiB of a range.

        Gaps count as offsets of 0 bytes. Raises `DataLossError` and `KafkaError` as `batches`.
        """
        taken, position = 0, start
        with _naming_losses(f"{topic}-{partition} [{start}, {end})"):
            for header, batch in self._reader.read(
                topic, partition, start, end, max_bytes=_SAMPLE_BYTES
            ):
                taken += len(batch)
                position = header.last_offset + 1
                if taken >= _SAMPLE_BYTES:
                    break
        return taken / max(1, position - start)

    def _retrying(self, work: Callable[[], T]) -> T:
        """Return `work()`; retry it while brokers restart.

        Offsets and records are retried in any case, because they are requested of leaders.
        """
        is_known = bool(self._cluster.view.brokers)
        return self._cluster.retrying(work) if is_known or self._awaits_cluster else work()

    def _list(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAt]:
        return list_offsets(self._cluster, times, read_committed=read_committed) if times else {}


def _meta(topic: Topic) -> TopicMeta:
    partitions = tuple(partition.partition for partition in topic.partitions)
    return TopicMeta(topic.name, encode_uuid(topic.topic_id), partitions)


def _offsets(places: Mapping[TopicPartition, OffsetAt]) -> dict[TopicPartition, int]:
    return {key: offset_at.offset for key, offset_at in places.items()}


@contextmanager
def _naming_missing() -> Iterator[None]:
    try:
        yield
    except (TopicNotFoundError, PartitionNotFoundError) as error:
        raise TopicMissingError(error.message) from None


@contextmanager
def _naming_losses(where: str) -> Iterator[None]:
    try:
        yield
    except LogTruncatedError as error:
        raise LogReplacedError(f"{where}: {error.message}") from None
    except OffsetOutOfRangeError as error:
        raise DataLossError(error.message) from None
    except (TopicNotFoundError, PartitionNotFoundError, TopicRecreatedError) as error:
        raise TopicGoneError(f"{where}: {error.message}") from None
