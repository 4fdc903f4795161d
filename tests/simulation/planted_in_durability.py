"""Acknowledgements before the fsync of their records, in worlds where every record is synced.

Each bug leaves the broker's own state consistent: only the acknowledgements reveal it. The worlds
cut the power right after acknowledgements.
"""

from __future__ import annotations

from typing import Any

import pytest

from lakelog.base.config.keys.topics import PAGE_CACHE
from lakelog.metadata.store.sqlite import SqliteLog
from lakelog.replica.partition import Partition
from lakelog.replica.watermark import HighWatermark
from lakelog.server.coordinators import partition_log
from lakelog.server.handlers import produce
from lakelog.storage import coalescing, log
from lakelog.storage.flush import Flushes, FlushJob
from lakelog.storage.log import Log
from lakelog.storage.segments.segment import Segment
from simulation.planted_bug import bug
from simulator.checkers.laws import Law
from simulator.plan import SLOW_DISK

BY_FLUSH = {"log.durability": "fsync"}
POWER = ("power", SLOW_DISK)
AT_ONCE = {"log.flush.interval.messages": "1"}


@bug("committed by the append", Law.DURABLE, "idempotent", faults=POWER, settings=BY_FLUSH)
def _committed_by_append(monkeypatch: pytest.MonkeyPatch) -> None:
    def advance(self: HighWatermark) -> bool:
        self.offset, before = self._log.log_end_offset, self.offset
        return self.offset > before

    monkeypatch.setattr(HighWatermark, "advance", advance)


@bug("a produce waits for no flush", Law.DURABLE, "plain", faults=POWER, settings=BY_FLUSH)
def _waits_for_no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(self: Any, response: Any) -> Any:
        return response if self._request.acks else None

    monkeypatch.setattr(produce._Appends, "_answer", answer)


@bug(
    "a run of known requests waits for no flush",
    Law.DURABLE,
    "plain",
    "idempotent",
    faults=POWER,
    settings=BY_FLUSH,
    seconds=40.0,
)
def _run_waits_for_no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    def can_coalesce(config: Any) -> bool:
        return coalescing.can_coalesce(config._replace(durability=PAGE_CACHE))

    monkeypatch.setattr(log, "can_coalesce", can_coalesce)
    monkeypatch.setattr(HighWatermark, "by_append", property(lambda self: self._is_sole))


@bug("no flush at an append", Law.DURABLE, "idempotent", faults=POWER, settings=AT_ONCE)
def _no_flush_at_append(monkeypatch: pytest.MonkeyPatch) -> None:
    def follow(self: Partition) -> None:
        self.watermark.offset = self.log.log_end_offset

    monkeypatch.setattr(Partition, "_follow_append", follow)


@bug("a flush without fdatasync", Law.DURABLE, "idempotent", faults=POWER, settings=BY_FLUSH)
def _without_fdatasync(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = FlushJob._sync

    def names_only(self: FlushJob) -> None:
        handles, self.handles = self.handles, []
        sync(self)
        self.handles = handles

    monkeypatch.setattr(FlushJob, "_sync", names_only)


@bug(
    "a flush syncs the active segment alone",
    Law.DURABLE,
    "plain",
    "idempotent",
    "transactions",
    faults=POWER,
    settings=BY_FLUSH,
    seconds=40.0,
)
def _roll_without_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    unflushed = Flushes.unflushed_segments

    def newest(self: Flushes) -> list[Segment]:
        return [one for one in unflushed(self) if one is self.segments.active]

    monkeypatch.setattr(Flushes, "unflushed_segments", newest)


@bug(
    "a new segment's name is not synced",
    Law.DURABLE,
    "idempotent",
    faults=POWER,
    settings=AT_ONCE,
)
def _name_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Flushes, "_names_to_sync", lambda self: [])


@bug(
    "a flush covers records appended during it",
    Law.DURABLE,
    "plain",
    "idempotent",
    faults=POWER,
    settings=BY_FLUSH,
)
def _stands_for_more(monkeypatch: pytest.MonkeyPatch) -> None:
    finish = Log.finish_flush

    def generous(self: Log, job: FlushJob) -> None:
        job.end_offset = self.log_end_offset
        finish(self, job)

    monkeypatch.setattr(Log, "finish_flush", generous)


@bug(
    "a committed offset waits for no flush",
    Law.OFFSET_FORWARD,
    "classic group",
    faults=POWER,
    settings=BY_FLUSH,
)
def _offset_waits_for_no_flush(monkeypatch: pytest.MonkeyPatch) -> None:
    async def at_once(*arguments: Any) -> None:
        return None

    monkeypatch.setattr(partition_log, "committed", at_once)


@bug(
    "a change of metadata is answered before it is synced",
    Law.TOPIC_KEPT,
    "administration",
    faults=("power",),
    seeds=20,
)
def _metadata_below_full(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SqliteLog._connect

    def hasty(self: SqliteLog) -> Any:
        connection = connect(self)
        connection.execute("PRAGMA synchronous = NORMAL")
        return connection

    monkeypatch.setattr(SqliteLog, "_connect", hasty)
