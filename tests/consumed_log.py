"""A log of one partition that `lakelog consume` copies, and a run of the copy."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping, Sequence
from typing import cast

from lakelog.base.errors import KafkaError
from lakelog.cli.interaction import Stop
from lakelog.cli.pump import GroupProgress, Pump
from lakelog.cli.record_text import formatter
from lakelog.client.consumer import Consumer, ConsumerRecord
from lakelog.client.consumer.fetcher import Trouble

KEY = ("orders", 0)


class ConsumedLog:
    """A log of one partition; each poll returns at most two records and then nothing."""

    def __init__(self, size: int, *, has_gap_at_end: bool = False) -> None:
        self._size = size
        self._next = 0
        self._has_gap_at_end = has_gap_at_end
        self.committed: list[dict[tuple[str, int], int]] = []
        self.error: KafkaError | None = None
        self.stop: Stop | None = None
        self.trouble: Trouble | None = None
        self.on_revoked: Callable[[], None] | None = None
        self.rebalance_at: int | None = None

    @property
    def assignment(self) -> frozenset[tuple[str, int]]:
        return frozenset({KEY})

    def poll(self, timeout_s: float, max_records: int) -> Sequence[ConsumerRecord]:
        if self._next == self.rebalance_at:
            assert self.on_revoked is not None
            self.rebalance_at = None
            self.on_revoked()
            self._next = self.committed[-1][KEY] if self.committed else 0
        end = min(self._size, self._next + min(2, max_records))
        found = [
            ConsumerRecord(*KEY, offset, 0, None, b"v", (), 0) for offset in range(self._next, end)
        ]
        self._next = end
        if not found and self.stop is not None:
            self.stop.set()
        return found

    def position(self, partition: tuple[str, int]) -> int:
        at_end = self._next == self._size
        return self._next + (1 if at_end and self._has_gap_at_end else 0)

    def commit(self, offsets: Mapping[tuple[str, int], int]) -> None:
        if self.error is not None:
            raise self.error
        self.committed.append(dict(offsets))


def copied(
    source: ConsumedLog,
    count: int | None = None,
    ends: Mapping[tuple[str, int], int] | None = None,
    *,
    has_group: bool = False,
    stream: io.BytesIO | None = None,
) -> bytes:
    stop = source.stop = Stop()
    consumer = cast(Consumer, source)
    printed = stream or io.BytesIO()
    progress = GroupProgress(consumer, quiet=False) if has_group else None
    source.on_revoked = progress.revoke if progress is not None else None
    pump = Pump(
        consumer,
        printed,
        formatter("%o\n"),
        progress,
        patience_s=5.0,
        check_output=lambda: None,
        waiting="waiting",
    )
    pump.run(count, ends or {KEY: 1 << 62}, stop, exit_at_end=ends is not None)
    return printed.getvalue()
