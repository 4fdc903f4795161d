"""The records that compaction must keep: the newest of each key, and tombstones for some time.

A value begins with its key and a slash. A tombstone has no value, so a header has its name.
"""

from __future__ import annotations

from collections.abc import Mapping

from simulator.checkers.laws import Law
from simulator.checkers.observations import Place
from simulator.checkers.record_history import RecordHistory

TOMBSTONE = b"-"
"""The beginning of a tombstone's name, after its key and the slash."""


def check_keys(history: RecordHistory, topic_partition: Place, found: Mapping[int, bytes]) -> None:
    """Check that each key has its newest acknowledged value, or a newer one.

    `found` has all values of the partition by offset. A key whose tombstone compaction may have
    removed may be absent.
    """
    partition = history.partition(topic_partition)
    newest: dict[bytes, int] = {}
    for offset, value in found.items():
        key = value.partition(b"/")[0]
        newest[key] = max(offset, newest.get(key, -1))
    for key, value in _newest_of_keys(history, topic_partition).items():
        sent, last = history.sent[value], newest.get(key, -1)
        if last >= sent.acked or partition.is_hidden(sent.acked):
            continue
        law = Law.KEYS_KEPT
        if value.startswith(key + b"/" + TOMBSTONE):
            if last < 0 and partition.may_drop_tombstone(sent.made_at):
                continue
            law = Law.TOMBSTONE_KEPT if last < 0 else Law.DELETED
        text = f"{topic_partition} has lost {value!r}, the newest of its key, at {sent.acked}"
        history.findings.violation(law, text)


def _newest_of_keys(history: RecordHistory, partition: Place) -> dict[bytes, bytes]:
    """Return the value with the largest offset of each key, among values known to be committed."""
    newest: dict[bytes, bytes] = {}
    for value, sent in history.sent.items():
        transaction = sent.transaction
        if sent.topic_partition != partition or sent.acked < 0:
            continue
        if transaction is not None and not transaction.is_committed:
            continue
        key = value.partition(b"/")[0]
        if key not in newest or history.sent[newest[key]].acked < sent.acked:
            newest[key] = value
    return newest
