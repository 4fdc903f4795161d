"""All that the pipeline asks of a broker, and the only module here that knows the client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType

from lakelog.base.uuids import decode_uuid, encode_uuid
from lakelog.client.consumer.reader import PartitionReader
from lakelog.client.epochs import EpochEnd, epoch_ends
from lakelog.client.errors import (
    LogTruncatedError,
    OffsetOutOfRangeError,
    PartitionNotFoundError,
    TopicNotFoundError,
    TopicRecreatedError,
)
from lakelog.client.isolation import Batch
from lakelog.client.offsets import EARLIEST, LATEST, OffsetAt, list_offsets
from lakelog.client.view import Topic
from lakelog.tables.topic.errors import (
    DataLossError,
    LogReplacedError,
    TopicGoneError,
    TopicMissingError,
)
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.topic.ranges import OffsetRange

_SAMPLE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """`topic_id` is text, as it stands in offsets and in tables."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


class TopicClient:
    """A connection to a cluster. Its errors are `KafkaError`s unless said otherwise.

    With `read_committed` (the default) nothing of a transaction is read that was aborted, and the
    latest offset is that of the first transaction still open. `timeout_s` bounds each operation,
    and how long a read may go without progress.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        client_id: str,
        read_committed: bool = True,
        timeout_s: float = 60.0,
    ) -> None:
        self._reader = PartitionReader(
            bootstrap, client_id=client_id, read_committed=read_committed, timeout_s=timeout_s
        )
        self._cluster = self._reader.cluster
        self._cluster.request_timeout_s = min(self._cluster.request_timeout_s, timeout_s)

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> TopicClient:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def topics(self) -> dict[str, TopicMeta]:
        """Every topic that is not the cluster's own."""
        found = self._cluster.refresh().topics
        return {name: _meta(topic) for name, topic in found.items() if not topic.is_internal}

    def find(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        """Those of the topics that exist, as they are now."""
        wanted = list(names)
        self._cluster.refresh(wanted)
        found = {}
        for name in wanted:
            with suppress(TopicNotFoundError):
                found[name] = _meta(self._cluster.topic(name))
        return found

    def missing_text(self, name: str) -> str:
        """That a topic does not exist, with the name of one that does if it is similar."""
        try:
            self._cluster.topic(name)
        except TopicNotFoundError as error:
            return f"{error.message}. {error.hint}".rstrip(". ")
        return f"topic {name!r} did not exist a moment ago"

    def describe(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        """As they are now. Raises `TopicMissingError`."""
        wanted = list(names)
        found = self.find(wanted)
        for name in wanted:
            if name not in found:
                raise TopicMissingError(self.missing_text(name))
        return found

    def places(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        """The first offset at or after each time in milliseconds, -1 where there is none; or where
        the partition begins (`EARLIEST`) or the readable part of it ends (`LATEST`).

        This and what follows raises `TopicMissingError` for a topic that was deleted meanwhile.
        """
        with _telling_missing():
            return self._list(wanted, read_committed=self._reader.read_committed)

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return _offsets(self.places(dict.fromkeys(partitions, EARLIEST)))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last record that may be read."""
        return _offsets(self.latest_places(partitions))

    def latest_places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAt]:
        """`latest` with the leader epoch that no record below the offset exceeds."""
        return self.places(dict.fromkeys(partitions, LATEST))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Where the leader epoch of each partition ends in the log as it is now."""
        with _telling_missing():
            return epoch_ends(self._cluster, epochs) if epochs else {}

    def log_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last record there is, also of transactions that are open."""
        with _telling_missing():
            return _offsets(self._list(dict.fromkeys(partitions, LATEST), read_committed=False))

    def batches(self, wanted: OffsetRange) -> Iterator[Batch]:
        """Every batch of records that holds an offset of the range, in order.

        Raises `DataLossError` when the log no longer has the range: `TopicGoneError` if the topic
        was deleted or is another, `LogReplacedError` from the first batch on that was appended
        after the range was planned.
        """
        topic_id = decode_uuid(wanted.topic_id) if wanted.topic_id else None
        epoch = wanted.leader_epoch
        try:
            for header, batch in self._reader.read(
                wanted.topic, wanted.partition, wanted.start, wanted.end, topic_id=topic_id
            ):
                if 0 <= epoch < header.partition_leader_epoch:
                    raise LogReplacedError(
                        f"{wanted}: the log was cut at or before offset {header.base_offset} and "
                        f"grew again, in leader epoch {header.partition_leader_epoch} instead of "
                        f"{epoch}"
                    )
                if not header.is_control:
                    yield header, batch
        except LogTruncatedError as error:
            raise LogReplacedError(f"{wanted}: {error.message}") from None
        except OffsetOutOfRangeError as error:
            raise DataLossError(error.message) from None
        except (TopicNotFoundError, PartitionNotFoundError, TopicRecreatedError) as error:
            raise TopicGoneError(f"{wanted}: {error.message}") from None

    def bytes_per_offset(self, topic: str, partition: int, start: int, end: int) -> float:
        """How much of the log an offset takes, judged by the first records of a range."""
        taken, position = 0, start
        for header, batch in self._reader.read(
            topic, partition, start, end, max_bytes=_SAMPLE_BYTES
        ):
            taken += len(batch)
            position = header.last_offset + 1
            if taken >= _SAMPLE_BYTES:
                break
        return taken / max(1, position - start)

    def _list(
        self, wanted: Mapping[TopicPartition, int], *, read_committed: bool
    ) -> dict[TopicPartition, OffsetAt]:
        return list_offsets(self._cluster, wanted, read_committed=read_committed) if wanted else {}


def _meta(topic: Topic) -> TopicMeta:
    partitions = tuple(partition.partition for partition in topic.partitions)
    return TopicMeta(topic.name, encode_uuid(topic.topic_id), partitions)


def _offsets(places: Mapping[TopicPartition, OffsetAt]) -> dict[TopicPartition, int]:
    return {key: place.offset for key, place in places.items()}


@contextmanager
def _telling_missing() -> Iterator[None]:
    try:
        yield
    except (TopicNotFoundError, PartitionNotFoundError) as error:
        raise TopicMissingError(error.message) from None
