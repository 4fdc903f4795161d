"""Commits for `lakelog consume --group`: offsets of records that were written to stdout.

It commits every few seconds, before partitions are revoked, and at the end. Notes on stderr report
a commit that the group rejects, and records that are therefore printed twice.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Protocol

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.positions import TopicPartition
from lakelog.cli.records.record_text import ConsumedRecord
from lakelog.cli.render import note

_COMMIT_EVERY_S = 5.0
_MOVED_ON = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)


class Positions(Protocol):
    """The part of `Consumer` that this module uses."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...
    def position(self, partition: TopicPartition) -> int: ...
    def commit(self, offsets: Mapping[TopicPartition, int]) -> None: ...


class GroupProgress:
    """The written and the committed offsets of a group's member."""

    def __init__(self, source: Positions, *, quiet: bool) -> None:
        self._source = source
        self._quiet = quiet
        self._written: dict[TopicPartition, int] = {}
        """The next offset of every assigned partition, past markers.

        Start offsets are committed too: a restarted member must not begin at a later end.
        """
        self._committed: dict[TopicPartition, int] = {}
        self._reached: dict[TopicPartition, int] = {}
        """The offset after the last record that this run has written, per partition."""
        self._unchecked: set[TopicPartition] = set()
        """Partitions whose next record may have been written before."""
        self._next_commit_s = time.monotonic() + _COMMIT_EVERY_S

    def wrote(self, records: Sequence[ConsumedRecord]) -> None:
        """Note that `records` of the last poll were written."""
        if self._unchecked:
            self._note_repeats(records)
        for topic, partition in {(record.topic, record.partition) for record in records}:
            key = topic, partition
            self._reached[key] = max(self._reached.get(key, 0), self._source.position(key))
        self._written = {key: self._source.position(key) for key in self._source.assignment}

    def commit_if_due(self) -> None:
        """Commit if the last commit is a few seconds old; in a rebalance `revoke` commits.

        Raises `KafkaError` unless the group rejects the commit because it has rebalanced.
        """
        if time.monotonic() >= self._next_commit_s:
            self._try_commit()

    def revoke(self) -> None:
        """Commit before the member gives up its partitions."""
        self.commit()
        self._unchecked = set(self._reached)
        self._written, self._committed = {}, {}

    def commit(self) -> None:
        """Commit now; print a note if the group rejects the commit."""
        if self._try_commit():
            return
        late = [key for key in self._uncommitted() if key in self._reached]
        if late:
            names = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(late))
            text = f"the group has rebalanced: members will read the last records of {names} again"
            note(text, quiet=self._quiet)

    def _try_commit(self) -> bool:
        """Commit; return whether the group accepted it."""
        self._next_commit_s = time.monotonic() + _COMMIT_EVERY_S
        offsets = self._uncommitted()
        if not offsets:
            return True
        try:
            self._source.commit(offsets)
        except KafkaError as error:
            if error.code not in _MOVED_ON:
                raise
            return False
        self._committed |= offsets
        return True

    def _uncommitted(self) -> dict[TopicPartition, int]:
        return {key: at for key, at in self._written.items() if self._committed.get(key) != at}

    def _note_repeats(self, records: Sequence[ConsumedRecord]) -> None:
        for record in records:
            key = record.topic, record.partition
            if key not in self._unchecked:
                continue
            self._unchecked.remove(key)
            last = self._reached[key] - 1
            if record.offset <= last:
                text = f"{key[0]}-{key[1]}: printed again after a rebalance: offsets"
                note(f"{text} {record.offset} to {last}", quiet=self._quiet)
