"""A steady load by an idempotent producer of another project, and the proof of its records.

The records in the topic are compared with the acknowledged ones. The timeline has the faults and
the longest times without an acknowledged write.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition


class Acknowledged(NamedTuple):
    """A record whose write was acknowledged: its place and its value, with the time in seconds.

    offset: `None` if the client does not know it, as after an error for the repetition of a batch
        that an earlier request has written.
    """

    partition: int
    offset: int | None
    value: bytes
    moment_s: float


class Verdict(NamedTuple):
    """Numbers of records. `reordered` have a smaller number than an earlier record."""

    acknowledged: int
    stored: int
    missing: int
    misplaced: int
    repeated: int
    reordered: int

    @property
    def holds(self) -> bool:
        """Whether every acknowledged record is stored once, where and in the order promised."""
        return not (self.missing or self.misplaced or self.repeated or self.reordered)


def examine(
    acknowledged: Sequence[Acknowledged], stored: Mapping[int, Sequence[tuple[int, bytes]]]
) -> Verdict:
    """Return the verdict. `stored` are offset and value of all records, by partition.

    The value of a record is its number as text; a producer sends rising numbers to a partition.
    """
    places = {
        (partition, offset): value for partition, rows in stored.items() for offset, value in rows
    }
    counts = Counter(places.values())
    missing = sum(record.value not in counts for record in acknowledged)
    misplaced = sum(
        record.value in counts and not _is_in_place(record, stored, places)
        for record in acknowledged
    )
    reordered = sum(
        int(later[1]) < int(earlier[1])
        for rows in stored.values()
        for earlier, later in pairwise(rows)
    )
    repeated = sum(count - 1 for count in counts.values())
    return Verdict(len(acknowledged), len(places), missing, misplaced, repeated, reordered)


def _is_in_place(
    record: Acknowledged,
    stored: Mapping[int, Sequence[tuple[int, bytes]]],
    places: Mapping[tuple[int, int], bytes],
) -> bool:
    if record.offset is None:
        return any(value == record.value for _, value in stored.get(record.partition, ()))
    return places.get((record.partition, record.offset)) == record.value


class Gap(NamedTuple):
    """A time without an acknowledged write in one partition, in seconds from the start."""

    partition: int
    begin_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """Seconds between the two acknowledgements."""
        return self.end_s - self.begin_s


def longest_gap(
    acknowledged: Iterable[tuple[int, float]], begin_s: float, end_s: float
) -> Gap | None:
    """Return the longest gap of any partition that overlaps the times from `begin_s` to `end_s`.

    acknowledged: partition and time of each acknowledged write, in the order of time. A gap that
    has not ended counts as well. None if no partition has a write.
    """
    before: dict[int, float] = {}
    gaps = []
    for partition, moment in acknowledged:
        if partition in before and moment >= begin_s and before[partition] <= end_s:
            gaps.append(Gap(partition, before[partition], moment))
        before[partition] = moment
    gaps += [Gap(partition, last, end_s) for partition, last in before.items() if last < end_s]
    return max(gaps, key=lambda gap: gap.length_s, default=None)


class Fault(NamedTuple):
    """An injected fault with its text, and the time until all replicas were in sync again."""

    text: str
    begin_s: float
    end_s: float


def table(faults: Sequence[Fault], gaps: Sequence[Gap | None]) -> str:
    """Return one line per fault, with the longest gap that it caused."""
    assert len(faults) == len(gaps)
    width = max(len(fault.text) for fault in faults)
    lines = [f"{'fault':<{width}}  longest gap of acknowledged writes"]
    lines.append("─" * len(lines[0]))
    for fault, gap in zip(faults, gaps, strict=True):
        shown = "no write" if gap is None else f"{gap.length_s:.2f} s (partition {gap.partition})"
        lines.append(f"{fault.text:<{width}}  {shown}")
    return "\n".join(lines)


_PAUSE_S = 0.002
_FLUSH_S = 60.0
_POLL_S = 60.0
_QUIET = {"log_level": 0}
_PRODUCER = {
    "enable.idempotence": True,
    "acks": "all",
    "linger.ms": 2,
    "retry.backoff.ms": 50,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 250,
    "topic.metadata.refresh.fast.interval.ms": 50,
}


class Load:
    """Sends numbered records to all partitions in turn, from `start` to `stop`.

    Attributes:
        failed: the number of records that the producer gave up.
    """

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self._producer = Producer({"bootstrap.servers": bootstrap} | _PRODUCER | _QUIET)
        self._topic = topic
        self._partitions = partitions
        self._begun = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[Acknowledged] = []
        self.sent = 0
        self.failed = 0

    def start(self) -> None:
        """Send from now on, which is the time 0."""
        self._begun = time.monotonic()
        self._thread.start()

    def stop(self) -> None:
        """Send nothing more, and wait for the acknowledgements of all records."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()
            self.failed += self._producer.flush(_FLUSH_S)

    @property
    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._begun

    def _run(self) -> None:
        while not self._stopping.is_set():
            for partition in range(self._partitions):
                value = str(self.sent).encode()
                try:
                    self._producer.produce(
                        self._topic, value, partition=partition, on_delivery=self._delivered
                    )
                    self.sent += 1
                except BufferError:  # nothing is acknowledged, and the producer's queue is full
                    break
            self._producer.poll(_PAUSE_S)
            self._stopping.wait(_PAUSE_S)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.failed += 1
            return
        partition, offset, value = message.partition(), message.offset(), message.value()
        assert partition is not None and isinstance(value, bytes)
        self.acknowledged.append(Acknowledged(partition, offset, value, self.now_s))


def stored_records(
    bootstrap: str, topic: str, partitions: int
) -> dict[int, list[tuple[int, bytes]]]:
    """Return offset and value of all records, by partition. Raises `RuntimeError` at a timeout."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "demo", "enable.auto.commit": False}
    consumer = Consumer(settings | _QUIET)
    records: dict[int, list[tuple[int, bytes]]] = {}
    try:
        for partition in range(partitions):
            topic_partition = TopicPartition(topic, partition, 0)
            _, end = consumer.get_watermark_offsets(topic_partition, timeout=_POLL_S)
            rows = records[partition] = []
            consumer.assign([topic_partition])
            while len(rows) < end:
                messages = consumer.consume(min(10_000, end - len(rows)), _POLL_S)
                if not messages:
                    raise RuntimeError(f"no record of {topic}-{partition} at offset {len(rows)}")
                for message in messages:
                    offset, value = message.offset(), message.value()
                    if message.error() is None:
                        assert offset is not None and isinstance(value, bytes)
                        rows.append((offset, value))
    finally:
        consumer.close()
    return records
