"""The history of records: what producers sent, and what producers and readers were answered.

Each value is unique. The history therefore shows when one value has two offsets, one offset two
values, or a value was never sent. The outcome of a failed request is unknown: its values may be in
the log, once. `partition_check` looks for acknowledged values that are missing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from simulator.checkers.findings import Findings
from simulator.checkers.laws import Law
from simulator.checkers.observations import PartitionHistory, Place, Sent, Transaction


class RecordHistory:
    """All partitions of a world."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.sent: dict[bytes, Sent] = {}
        self.partitions: dict[Place, PartitionHistory] = {}
        self.transactions: list[Transaction] = []
        self.forgets: Callable[[Place, float], bool] = lambda partition, since: False
        """Returns whether a producer last heard of at this time may have expired since."""
        self.on_acknowledged: Callable[[], object] = lambda: None
        """Called when a producer receives an acknowledgement."""

    def partition(self, partition: Place) -> PartitionHistory:
        return self.partitions.setdefault(partition, PartitionHistory())

    # Writing

    def will_send(
        self,
        partition: Place,
        values: Iterable[bytes],
        *,
        once: bool = False,
        transaction: Transaction | None = None,
        made_at: float = 0.0,
        producer_id: int = -1,
        timestamp: int = 0,
    ) -> None:
        """Record values before their first request; `made_at` is the time of the batch."""
        for value in values:
            assert value not in self.sent, f"{value!r} is not unique"
            if transaction is not None:
                transaction.topic_partitions.add(partition)
            self.findings.counts["sent"] += 1
            self.sent[value] = Sent(
                partition,
                once,
                transaction,
                made_at=made_at,
                number=self.findings.counts["sent"],
                producer_id=producer_id,
                timestamp=timestamp,
            )

    def acknowledged(self, partition: Place, base_offset: int, values: Iterable[bytes]) -> None:
        """Record an acknowledged batch; `base_offset` is -1 if the response has no offset."""
        for number, value in enumerate(values):
            sent = self.sent[value]
            assert sent.topic_partition == partition, (
                f"{value!r} was sent to {sent.topic_partition}"
            )
            self.findings.counts["acked"] += 1
            if sent.transaction is not None:
                sent.transaction.values[value] = partition
            if base_offset >= 0:
                sent.acked = base_offset + number
                self._note(partition, sent.acked, value, "acknowledged")
        self.on_acknowledged()

    def begin(self, name: str) -> Transaction:
        """Record the beginning of a transaction and return it."""
        transaction = Transaction(name)
        self.transactions.append(transaction)
        return transaction

    # Reading

    def read(self, partition: Place, offset: int, value: bytes, *, committed: bool) -> None:
        """Check one record that was read; `committed` is the isolation level read_committed."""
        self.findings.counts["read"] += 1
        sent = self.sent.get(value)
        if sent is None or sent.topic_partition != partition:
            self.findings.violation(
                Law.WRITTEN, f"{partition} has {value!r} at {offset}, which no client sent there"
            )
            return
        self._note(partition, offset, value, "read")
        transaction = sent.transaction
        if committed and transaction is not None and transaction.is_open_or_aborted:
            self.findings.violation(
                Law.COMMITTED_ONLY,
                f"{partition} shows {value!r} at {offset} to readers of committed records: its "
                f"transaction {transaction.name} is {transaction.fate.value}",
            )

    def _note(self, topic_partition: Place, offset: int, value: bytes, how: str) -> None:
        partition = self.partition(topic_partition)
        known = partition.values.setdefault(offset, value)
        if known != value:
            self.findings.violation(
                Law.ONE_VALUE, f"{topic_partition} has {known!r} and {value!r} at {offset} ({how})"
            )
        partition.end = max(partition.end, offset + 1)
        sent = self.sent[value]
        if sent.once and sent.seen not in (-1, offset) and not self._may_be_twice(sent):
            self.findings.violation(
                Law.ONCE, f"{topic_partition} has {value!r} at {sent.seen} and at {offset} ({how})"
            )
        sent.seen = offset

    def _may_be_twice(self, sent: Sent) -> bool:
        """Return whether a log that has forgotten the producer may have appended a retry again."""
        if not sent.twice and self.may_be_forgotten(sent):
            sent.twice = True
            self.findings.counts["retries of forgotten producers"] += 1
        return sent.twice

    def may_be_forgotten(self, sent: Sent) -> bool:
        """Return whether the log may have forgotten the value's producer since it was sent.

        A producer with an open transaction does not expire.
        """
        return sent.transaction is None and self.forgets(sent.topic_partition, sent.made_at)

    def note_epoch(self, topic_partition: Place, last_offset: int, epoch: int) -> None:
        """Record the leader epoch of a batch that was read.

        Compaction may put another batch there, so compacted partitions are not recorded.
        """
        partition = self.partition(topic_partition)
        if not partition.compacted:
            partition.epochs[last_offset] = epoch

    def timestamps(self, topic_partition: Place) -> dict[int, int]:
        """Return the timestamps of known records by offset, in milliseconds.

        Empty if the broker may have changed timestamps or removed records.
        """
        partition = self.partition(topic_partition)
        if not partition.has_times or partition.compacted:
            return {}
        return {
            offset: self.sent[value].timestamp
            for offset, value in partition.values.items()
            if offset >= partition.start
        }

    # Losses that no acknowledgement excludes

    def cut(self, topic_partition: Place, end: int) -> None:
        """Forget records from offset `end` on: the log lost its end, and broke no promise."""
        partition = self.partition(topic_partition)
        partition.cuts += 1
        for offset in [offset for offset in partition.values if offset >= end]:
            sent = self.sent[partition.values.pop(offset)]
            self.findings.counts["lost with the end of a log"] += 1
            sent.acked = sent.seen = -1
            if sent.transaction is not None:
                sent.transaction.values = {
                    value: at
                    for value, at in sent.transaction.values.items()
                    if self.sent[value].acked >= 0
                }
        partition.end = min(partition.end, end)
        for offset in [offset for offset in partition.epochs if offset >= end]:
            del partition.epochs[offset]
        for transaction in self.transactions:
            if topic_partition in transaction.topic_partitions or topic_partition[0].startswith(
                "__"
            ):
                transaction.torn |= transaction.ends.get(topic_partition, end + 1) > end

    def check_durable(self, topic_partition: Place, end: int, damaged_at: int | None) -> None:
        """Check that a log that ends at `end` after a restart has every acknowledged record.

        Records from `damaged_at` on are excused: a bit flipped there.
        """
        partition = self.partition(topic_partition)
        lost = {
            offset: value
            for offset, value in partition.values.items()
            if max(end, partition.start) <= offset and (damaged_at is None or offset < damaged_at)
        }
        self.findings.expect(
            Law.DURABLE,
            not lost,
            f"{topic_partition} ends at {end} after a restart; clients know of {lost}",
        )

    def deleted(self, topic_partition: Place, start: int) -> None:
        """Record that records below `start` may be gone."""
        partition = self.partition(topic_partition)
        partition.start = max(partition.start, start)

    def trimmed(self, topic_partition: Place, start: int) -> None:
        """Record the log start offset in a response to DeleteRecords."""
        partition = self.partition(topic_partition)
        partition.trimmed = max(partition.trimmed, start)

    def begins(self, topic_partition: Place, start: int) -> None:
        """Check the log start offset in a response to a reader."""
        partition = self.partition(topic_partition)
        if partition.retention is not None:
            lost = partition.retention(start)
            self.findings.expect(
                Law.RETAINED, not lost, f"{topic_partition} begins at {start}: {lost} had to stay"
            )
        else:
            self.findings.expect(
                Law.START_KEPT,
                start <= partition.start,
                f"{topic_partition} begins at {start}, and no client deleted so much",
            )
        self.deleted(topic_partition, start)

    def forget(self, topic: str) -> None:
        """Forget a topic that is, or may be, deleted."""
        for partition in [partition for partition in self.partitions if partition[0] == topic]:
            del self.partitions[partition]
        for value in [
            value for value, sent in self.sent.items() if sent.topic_partition[0] == topic
        ]:
            del self.sent[value]

    def committed_end(self, partition: Place) -> int:
        """Return the offset after the last record whose transaction is known to be committed."""
        committed = [transaction for transaction in self.transactions if transaction.is_committed]
        values = [
            value for entry in committed for value, at in entry.values.items() if at == partition
        ]
        return max((self.sent[value].acked + 1 for value in values), default=0)
