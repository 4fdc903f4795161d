"""Copies records from a consumer to a stream until a count, an end, or a signal."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO, TYPE_CHECKING, Protocol

from lakelog.base.errors import KafkaError
from lakelog.cli.positions import TopicPartition
from lakelog.cli.records.record_text import ConsumedRecord, Formatter
from lakelog.cli.render import note
from lakelog.cli.stopping import Interrupted, Stop

if TYPE_CHECKING:
    from lakelog.cli.records.group_progress import GroupProgress
    from lakelog.client.consumer.fetcher import Trouble

_POLL_S = 0.5
_POLL_RECORDS = 5000


class RecordSource(Protocol):
    """The part of `Consumer` that this module uses."""

    @property
    def assignment(self) -> frozenset[TopicPartition]: ...
    @property
    def trouble(self) -> Trouble | None: ...
    def poll(self, timeout_s: float, max_records: int) -> Sequence[ConsumedRecord]: ...
    def position(self, partition: TopicPartition) -> int: ...


class Pump:
    """Copies records. `progress` commits written records for a group, if there is one."""

    def __init__(
        self,
        source: RecordSource,
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

    def _write(self, records: Sequence[ConsumedRecord]) -> None:
        if records:
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
            waited_s = time.monotonic() - trouble.since_s
            if waited_s > self._patience_s:
                text = f"no answer for {waited_s:.0f} s: {trouble.error.message}"
                raise TimeoutError(text) from trouble.error
