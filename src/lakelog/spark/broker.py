"""All that the pipeline asks of a broker, and the only module here that knows the client."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import TracebackType

from lakelog.base.uuids import decode_uuid, encode_uuid
from lakelog.client.consumer.reader import PartitionReader
from lakelog.client.epochs import EpochEnd, epoch_ends
from lakelog.client.errors import OffsetOutOfRangeError, TopicNotFoundError, TopicRecreatedError
from lakelog.client.offsets import EARLIEST, LATEST, OffsetAt, list_offsets
from lakelog.client.producer.api import Producer
from lakelog.client.view import Topic
from lakelog.records.record import Record, decode_records
from lakelog.spark.errors import DataLossError, TopicMissingError
from lakelog.spark.offsets import TopicPartition

_DECODED_BYTES_MAX = 256 << 20
_SAMPLE_BYTES = 64 << 10


@dataclass(frozen=True, slots=True)
class TopicMeta:
    """`topic_id` is text, as it stands in offsets and in tables."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Chunk:
    """Records of one batch. `timestamp_type` is 0 (CreateTime) or 1 (LogAppendTime)."""

    timestamp_type: int
    records: list[Record]


class Broker:
    """A connection to a cluster. Its errors are `KafkaError`s unless said otherwise.

    With `read_committed` (the default) nothing of a transaction is read that was aborted, and the
    latest offset is that of the first transaction still open.
    """

    def __init__(self, bootstrap: str, *, client_id: str, read_committed: bool = True) -> None:
        self._reader = PartitionReader(
            bootstrap, client_id=client_id, read_committed=read_committed
        )
        self._cluster = self._reader.cluster

    def close(self) -> None:
        self._reader.close()

    def __enter__(self) -> Broker:
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

    def describe(self, names: Iterable[str]) -> dict[str, TopicMeta]:
        """As they are now. Raises `TopicMissingError`."""
        wanted = list(names)
        self._cluster.refresh(wanted)
        try:
            return {name: _meta(self._cluster.topic(name)) for name in wanted}
        except TopicNotFoundError as error:
            raise TopicMissingError(f"{error.message}. {error.hint}".rstrip(". ")) from None

    def earliest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self._offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last record that may be read."""
        return self._offsets(dict.fromkeys(partitions, LATEST))

    def latest_places(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, OffsetAt]:
        """`latest` with the leader epoch that no record below the offset exceeds."""
        return self._places(dict.fromkeys(partitions, LATEST))

    def epoch_ends(self, epochs: Mapping[TopicPartition, int]) -> dict[TopicPartition, EpochEnd]:
        """Where the leader epoch of each partition ends in the log as it is now."""
        return epoch_ends(self._cluster, epochs) if epochs else {}

    def log_end(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """One past the last record there is, also of transactions that are open."""
        wanted = dict.fromkeys(partitions, LATEST)
        return {key: place.offset for key, place in list_offsets(self._cluster, wanted).items()}

    def at_timestamps(
        self, wanted: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after each time in milliseconds; `None` where there is none."""
        return {key: at if at >= 0 else None for key, at in self._offsets(wanted).items()}

    def read(
        self, topic: str, partition: int, start: int, end: int, *, topic_id: str = ""
    ) -> Iterator[Chunk]:
        """Every record with an offset in [start, end), in order.

        Raises `DataLossError` when the log no longer has the range, or the topic is another.
        """
        known_id = decode_uuid(topic_id) if topic_id else None
        batches = self._reader.read(topic, partition, start, end, topic_id=known_id)
        try:
            for header, batch in batches:
                if header.is_control:
                    continue
                records = decode_records(batch, header, _DECODED_BYTES_MAX)
                if header.base_offset < start or header.last_offset >= end:
                    records = [record for record in records if start <= record.offset < end]
                if records:
                    yield Chunk(header.timestamp_type, records)
        except (OffsetOutOfRangeError, TopicRecreatedError) as error:
            raise DataLossError(error.message) from None

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

    def _offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {key: place.offset for key, place in self._places(wanted).items()}

    def _places(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAt]:
        if not wanted:
            return {}
        return list_offsets(self._cluster, wanted, read_committed=self._reader.read_committed)


def open_producer(
    bootstrap: str, *, acks: int, compression: str, request_bytes_max: int, client_id: str
) -> Producer:
    """An idempotent producer, unless `acks` forbids it. Raises `ValueError` for bad settings."""
    return Producer(
        bootstrap,
        acks=acks,
        compression=compression,
        max_request_bytes=request_bytes_max,
        client_id=client_id,
    )


def _meta(topic: Topic) -> TopicMeta:
    partitions = tuple(partition.partition for partition in topic.partitions)
    return TopicMeta(topic.name, encode_uuid(topic.topic_id), partitions)
