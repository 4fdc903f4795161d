"""Copies records from a consumer to a stream until a count, an end, or a signal.

For `lakelog consume --group` it commits the offsets of records that were written to stdout: every
few seconds, before partitions are revoked, and at the end. Notes on stderr report a commit that the
group rejects, and records that are therefore printed twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.interaction import Interrupted, Stop
from lakelog.cli.positions import TopicPartition
from lakelog.cli.record_text import Formatter
from lakelog.cli.render import note

if TYPE_CHECKING:
    from lakelog.client.consumer import Consumer, ConsumerRecord


_COMMIT_EVERY_S = 5.0
_MOVED_ON = (
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID,
)


class GroupProgress:
    """The written and the committed offsets of a group's member."""

    def __init__(self, source: Consumer, *, quiet: bool) -> None:
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

    def wrote(self, records: Sequence[ConsumerRecord]) -> None:
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

    def _note_repeats(self, records: Sequence[ConsumerRecord]) -> None:
        for record in records:
            key = record.topic, record.partition
            if key not in self._unchecked:
                continue
            self._unchecked.remove(key)
            last = self._reached[key] - 1
            if record.offset <= last:
                text = f"{key[0]}-{key[1]}: printed again after a rebalance: offsets"
                note(f"{text} {record.offset} to {last}", quiet=self._quiet)


_POLL_S = 0.5
_POLL_RECORDS = 5000


class Pump:
    """Copies records. `progress` commits written records for a group, if there is one."""

    def __init__(
        self,
        source: Consumer,
        stream: IO[bytes],
        form: Formatter,
        progress: GroupProgress | None,
        *,
        patience_s: float,
        check_output: Callable[[], None],
        waiting: str = "",
    ) -> None:
        """Create a pump.

        check_output: raises `BrokenPipeError` if the stream has no reader. patience_s: how long a
        run with an end waits for a broker that does not answer. waiting: the note at the end of the
        partitions, if the run continues there.
        """
        self._source = source
        self._stream = stream
        self._form = form
        self._progress = progress
        self._patience_s = patience_s
        self._check_output = check_output
        self._waiting = waiting
        self._in_trouble = False
        self._last_s = 0.0
        """When the last records came (seconds, monotonic clock)."""

    def run(
        self,
        count: int | None,
        ends: Mapping[TopicPartition, int],
        stop: Stop,
        *,
        exit_at_end: bool,
    ) -> None:
        """Copy records until `count`, the `ends` (log end offsets), or a signal.

        Commits the written records in any case. Raises `KafkaError`, and `OSError` if the output is
        closed.
        """
        left = count
        knows_assignment = self._progress is None
        try:
            while left != 0 and not stop.is_set():
                if knows_assignment and self._is_at(ends):
                    if exit_at_end:
                        return
                    self._say_waiting()
                size = _POLL_RECORDS if left is None else min(left, _POLL_RECORDS)
                records = self._source.poll(_POLL_S, size)
                self._write(records)
                self._watch_trouble(ends_itself=exit_at_end or count is not None)
                left = None if left is None else left - len(records)
                # Without a membership there is no assignment, which must not count as the end.
                knows_assignment = self._progress is None or self._source.trouble is None
        except Interrupted:
            return  # while joining the group, before any record was read
        except KafkaError:
            if not stop.is_set():  # it must not hide the error that ended the run
                raise
        finally:
            if self._progress is not None:
                self._progress.commit()

    def _write(self, records: Sequence[ConsumerRecord]) -> None:
        if records:
            self._last_s = time.monotonic()
            rest = memoryview(b"".join(map(self._form, records)))
            while rest:  # a signal may cut a write to an unbuffered stream (python -u) short
                rest = rest[self._stream.write(rest) :]
            self._stream.flush()
        else:
            self._check_output()
        if self._progress is not None:
            self._progress.wrote(records)
            self._progress.commit_if_due()

    def _is_at(self, ends: Mapping[TopicPartition, int]) -> bool:
        return all(
            self._source.position(key) >= ends[key]
            for key in self._source.assignment
            if key in ends
        )

    def _say_waiting(self) -> None:
        if self._waiting:
            note(self._waiting)
            self._waiting = ""

    def _watch_trouble(self, *, ends_itself: bool) -> None:
        """Print a note once if the broker is unreachable; raise if a run with an end times out."""
        trouble = self._source.trouble
        if trouble is not None and not self._in_trouble:
            note(f"{trouble.error.message}; retrying")
        self._in_trouble = trouble is not None
        if trouble is not None and ends_itself:
            # Records of other partitions may come meanwhile.
            waited_s = time.monotonic() - max(trouble.since_s, self._last_s)
            if waited_s > self._patience_s:
                text = f"no answer for {waited_s:.0f} s: {trouble.error.message}"
                raise TimeoutError(text) from trouble.error
