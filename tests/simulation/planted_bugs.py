"""Bugs that others have shipped, each as a patch of one function, and a plan that should show it.

The list follows what Jepsen and the KIPs have found: no deduplication, epochs used twice, reads
beyond the last stable offset, fsyncs left out, acknowledgements without a write, and so on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group import shard as group_shard
from lakelog.coordinator.group import upkeep
from lakelog.coordinator.group.consumer import ConsumerGroup
from lakelog.coordinator.group.records import OffsetCommitKey
from lakelog.coordinator.transaction import shard as transaction_shard
from lakelog.coordinator.transaction.transitions import End
from lakelog.metadata.plan import Plan as MetadataPlan
from lakelog.metadata.records import ForgottenEpochs
from lakelog.metadata.store.sqlite import SqliteLog
from lakelog.replica.fetch_session import FetchPlan
from lakelog.replica.partition import Partition
from lakelog.server import app, coordinators
from lakelog.storage import checking, loader
from lakelog.storage.compaction import clean
from lakelog.storage.compaction.transactions import CleanedTransactions
from lakelog.storage.directory import LogDirectory
from lakelog.storage.flush import FlushJob
from lakelog.storage.log import AppendResult, Log
from lakelog.storage.producer_state import ProducerStateTable
from lakelog.testing.simulation import Plan

Patch = Callable[[pytest.MonkeyPatch], None]
BUGS: list[Bug] = []
FLIP = "flipped record"


@dataclass(frozen=True)
class Bug:
    """`seeds` is how many are tried at most; `settings` are added to the broker's."""

    name: str
    patch: Patch
    workloads: tuple[str, ...]
    faults: tuple[str, ...]
    seeds: int
    settings: dict[str, str] = field(default_factory=dict)
    seconds: float = 15.0

    def plan(self) -> Plan:
        plan = Plan(self.seconds, frozenset(self.workloads), frozenset(self.faults))
        plan.settings.update(self.settings)
        return plan


def bug(
    name: str, *, workloads: tuple[str, ...], faults: tuple[str, ...], seeds: int, **rest: Any
) -> Callable[[Patch], Patch]:
    def plant(patch: Patch) -> Patch:
        BUGS.append(Bug(name, patch, workloads, faults, seeds, **rest))
        return patch

    return plant


@bug("no deduplication", workloads=("idempotent",), faults=("slow network", "reset"), seeds=10)
def _no_deduplication(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = ProducerStateTable.admit

    def without(self: ProducerStateTable, *arguments: Any) -> None:
        admit(self, *arguments)

    monkeypatch.setattr(ProducerStateTable, "admit", without)


@bug("last stable offset one too high", workloads=("transactions",), faults=(), seeds=10)
def _stable_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    stable = Log.last_stable_offset.fget
    assert stable is not None
    raised = property(lambda self: min(stable(self) + 1, self.log_end_offset))
    monkeypatch.setattr(Log, "last_stable_offset", raised)


@bug("aborted transactions are not told", workloads=("transactions",), faults=(), seeds=10)
def _no_aborted_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "aborted_transactions", lambda self, offset, found: [])


@bug("an epoch is used twice", workloads=("transactions",), faults=("client crash",), seeds=10)
def _epoch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    initialised = transaction_shard.initialised

    def same(current: Any, expected: Any, *rest: Any, **named: Any) -> Any:
        new = initialised(current, expected, *rest, **named)
        if current is None or new.state.is_ending or new.producer_id != current.producer_id:
            return new
        return replace(new, producer_epoch=current.producer_epoch)

    monkeypatch.setattr(transaction_shard, "initialised", same)


@bug(
    "producer ids are given out twice",
    workloads=("idempotent",),
    faults=("kill", "client crash"),
    seeds=10,
)
def _producer_ids_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "plan_producer_ids", lambda image, node: MetadataPlan((), range(1000)))


@bug(
    "what may be forgotten is forgotten at a clean stop",
    workloads=("transactions",),
    faults=("power", "stop"),
    seeds=10,
    seconds=25.0,
)
def _trusts_after_a_clean_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    register = app.plan_register_broker

    def trusting(*arguments: Any, clean: bool, **named: Any) -> Any:
        plan = register(*arguments, clean=clean, **named)
        records = (*plan.records, ForgottenEpochs(0)) if clean else plan.records
        return MetadataPlan(records, plan.result)

    monkeypatch.setattr(app, "plan_register_broker", trusting)


@bug(
    "what nobody knows of any more is left to hang",
    workloads=("transactions",),
    faults=("power",),
    seeds=10,
)
def _left_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(coordinators, "end_hanging", lambda *arguments: None)


@bug(
    "an fsync is left out",
    workloads=("idempotent",),
    faults=("power",),
    seeds=10,
    settings={"log.flush.interval.messages": "1"},
)
def _no_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    def run(self: FlushJob) -> None:
        self.done = True

    monkeypatch.setattr(FlushJob, "run", run)


@bug(
    "the end of a transaction cannot be repeated",
    workloads=("transactions",),
    faults=("slow network",),
    seeds=10,
)
def _end_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = transaction_shard.ended

    def refusing(current: Any, end: End, *rest: Any, **named: Any) -> Any:
        step = ended(current, end, *rest, **named)
        if step is None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return step

    monkeypatch.setattr(transaction_shard, "ended", refusing)


@bug(
    "offsets of a living group expire",
    workloads=("classic group", "consumer group"),
    faults=("clock",),
    seeds=20,
    seconds=30.0,
    settings={"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "2000"},
)
def _living_group_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    def expired(group_id: str, group: Any, offsets: Any, now_ms: int, retention: int) -> Any:
        return [
            OffsetCommitKey(group=group_id, topic=topic, partition=partition)
            for topic, partitions in offsets.items()
            for partition, value in partitions.items()
            if now_ms >= value.commit_timestamp + retention
        ]

    monkeypatch.setattr(upkeep, "expired_offsets", expired)


@bug("acknowledged though the disk is full", workloads=("plain",), faults=("disk full",), seeds=10)
def _acknowledged_unwritten(monkeypatch: pytest.MonkeyPatch) -> None:
    append = Partition.append

    def pretending(self: Partition, *arguments: Any, **named: Any) -> AppendResult:
        end = self.log.log_end_offset
        try:
            return append(self, *arguments, **named)
        except KafkaError as error:
            if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
                raise
            return AppendResult(end, end, -1, 0, False)

    monkeypatch.setattr(Partition, "append", pretending)


@bug("cut to the checkpointed high watermark", workloads=("plain",), faults=("kill",), seeds=10)
def _cut_to_watermark(monkeypatch: pytest.MonkeyPatch) -> None:
    load_logs = LogDirectory.load_logs

    def cutting(self: LogDirectory, *arguments: Any) -> Any:
        logs = load_logs(self, *arguments)
        for key, log in logs.items():
            if not self.clean:
                log.truncate_to(self.high_watermarks.get(key, 0))
        return logs

    monkeypatch.setattr(LogDirectory, "load_logs", cutting)


@bug(
    "a partition is given before it was given up",
    workloads=("consumer group",),
    faults=("client crash",),
    seeds=20,
)
def _given_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ConsumerGroup, "is_free", lambda self, topic_id, partition: True)


@bug(
    "commits of an old generation are taken",
    workloads=("classic group",),
    faults=("partition", "slow network", "client crash"),
    seeds=10,
)
def _old_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_shard, "check_commit", lambda *arguments: None)


@bug("aborted records return by compaction", workloads=("compaction",), faults=(), seeds=20)
def _aborted_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "CleanedTransactions", lambda aborted: CleanedTransactions(()))


@bug("compaction drops the newest value of a key", workloads=("compaction",), faults=(), seeds=10)
def _newest_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    note_keys = clean.note_keys

    def beyond(data: bytes, count: int, base: int, start: int, offsets: dict[bytes, int]) -> None:
        before = dict(offsets)
        note_keys(data, count, base, start, offsets)
        for key, offset in offsets.items():
            if before.get(key) != offset:
                offsets[key] = offset + 1

    monkeypatch.setattr(clean, "note_keys", beyond)


@bug("damaged batches are served", workloads=("idempotent",), faults=("stop", FLIP), seeds=10)
def _damage_served(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "check_crc", lambda *arguments: True)


@bug(
    "damage below the recovery point is taken for a torn tail",
    workloads=("idempotent",),
    faults=("kill", "stop", FLIP),
    seeds=20,
)
def _corrupt_for_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    recover = loader.recover_segment

    def from_nothing(segment: Any, recovery_point: int, *rest: Any, **named: Any) -> Any:
        return recover(segment, 0, *rest, **named)

    monkeypatch.setattr(loader, "recover_segment", from_nothing)
    monkeypatch.setattr(loader.LogLoader, "_check_end", lambda *arguments: None)


@bug("metadata is not synced", workloads=("administration",), faults=("power",), seeds=20)
def _metadata_unsynced(monkeypatch: pytest.MonkeyPatch) -> None:
    connect = SqliteLog._connect

    def hasty(self: SqliteLog) -> Any:
        connection = connect(self)
        connection.execute("PRAGMA synchronous = OFF")
        return connection

    monkeypatch.setattr(SqliteLog, "_connect", hasty)


@bug("a fetch session leaves out what is new", workloads=("plain",), faults=(), seeds=10)
def _left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FetchPlan, "includes", lambda self, *arguments: not self.incremental)
