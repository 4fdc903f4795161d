"""The receipts of a commit set beside the logs that hold the records.

A task leaves its receipt after the acknowledgement of its last record. A partition may have lost
some of these records since: with an unclean election, or with a broker whose log lost its end in a
crash. Without a check, the set would be committed with fewer records than its tasks wrote.

A child has an epoch of its own, so its sequences begin at 0 in each partition, and the log accepts
them without a gap. The last sequence in the log is therefore the number of its records.
"""

from __future__ import annotations

from collections.abc import Iterator

from lakelog.coordinator.transaction.requests import NO_SEQUENCE, LastSequences, WrittenTo
from lakelog.coordinator.transaction.sink.commit_sets import RefusedError
from lakelog.protocol.commit_sets import CommitSet, Refusal

_SEQUENCE_MAX = 0x7FFFFFFF


def written_to(commit_set: CommitSet) -> list[WrittenTo]:
    """Return the partitions of all receipts of a set."""
    return [target for target, _, _ in _receipts(commit_set)]


def check_records(commit_set: CommitSet, sequences: LastSequences) -> None:
    """Raise `RefusedError(RECORDS_LOST)` if a log has other records than a receipt."""
    for target, name, records in _receipts(commit_set):
        last = sequences[target]
        # Sequences wrap from 2^31 - 1 to 0.
        if last != NO_SEQUENCE and last == (records - 1) & _SEQUENCE_MAX:
            continue
        log = f"{target.topic}-{target.partition}"
        text = (
            f"the log of {log} has {last + 1} of the {records} records of the task {name}: a "
            "broker lost records that it had acknowledged, or the topic was deleted"
        )
        raise RefusedError(Refusal.RECORDS_LOST, text)


def _receipts(commit_set: CommitSet) -> Iterator[tuple[WrittenTo, str, int]]:
    """Yield each partition of each winner, with the winner's name and its number of records."""
    for winner in commit_set.winners:
        identity = winner.producer_id, winner.producer_epoch
        for topic in winner.topics:
            for row in topic.partitions:
                target = WrittenTo(topic.name, row.index, *identity)
                yield target, winner.transactional_id, row.records
