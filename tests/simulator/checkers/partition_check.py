"""Checks of whole partitions: every acknowledged record is there, in order, and no other.

The caller has read each partition from its log start offset to its end.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from simulator.checkers.compaction import check_keys
from simulator.checkers.laws import Law
from simulator.checkers.observations import Fate, Place
from simulator.checkers.record_history import RecordHistory


def check_partition(
    history: RecordHistory, topic_partition: Place, found: Mapping[int, bytes], *, committed: bool
) -> None:
    """Check the values of one partition by offset; `committed` if read with read_committed."""
    partition = history.partition(topic_partition)
    for offset, value in found.items():
        history.read(topic_partition, offset, value, committed=committed)
    _check_order(history, topic_partition, found)
    if partition.compacted:
        check_keys(history, topic_partition, found)
        return
    for value, sent in history.sent.items():
        if (
            sent.topic_partition != topic_partition
            or sent.acked < partition.start
            or sent.acked in found
        ):
            continue
        if partition.is_hidden(sent.acked):
            continue
        transaction = sent.transaction
        if committed and transaction is not None and not transaction.is_committed:
            continue
        history.findings.violation(
            Law.KEPT, f"{topic_partition} has lost {value!r}, acknowledged at {sent.acked}"
        )


def _check_order(history: RecordHistory, partition: Place, found: Mapping[int, bytes]) -> None:
    """Check that values of an idempotent producer are in the order of sending.

    A producer that the log may have forgotten is excused: its retries count as new.
    """
    newest: dict[int, int] = {}
    for offset in sorted(found):
        sent = history.sent.get(found[offset])
        if sent is None or sent.producer_id < 0 or history.may_be_forgotten(sent):
            continue
        before = newest.get(sent.producer_id, 0)
        history.findings.expect(
            Law.IN_ORDER,
            before < sent.number,
            f"{partition} has {found[offset]!r} at {offset}, behind a value that was sent after it",
        )
        newest[sent.producer_id] = sent.number


def check_transactions(
    history: RecordHistory, committed: Collection[bytes], partitions: Collection[Place]
) -> None:
    """Check that readers of committed records saw all values of a transaction, or none.

    `committed` has the values that they saw in `partitions`. Compacted ones are excused: newer
    values may have replaced some of a transaction's.
    """
    for transaction in history.transactions:
        if transaction.fate not in (Fate.COMMITTING, Fate.COMMITTED) or transaction.torn:
            continue
        live = [
            value
            for value, partition in transaction.values.items()
            if partition in partitions
            and history.sent[value].acked >= history.partition(partition).start
            and not history.partition(partition).compacted
            and not history.partition(partition).is_hidden(history.sent[value].acked)
        ]
        seen = sum(value in committed for value in live)
        nothing = 0 if transaction.fate is Fate.COMMITTING else len(live)
        history.findings.expect(
            Law.WHOLE,
            seen in (nothing, len(live)),
            f"{seen} of {len(live)} values of {transaction.name} are committed",
        )
