"""Bugs in the state of producers, and in the begin and end of transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from doubles.disk import MemoryDisk
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.offsets import PendingOffsets
from lakelog.coordinator.transaction import endings, producers, transitions
from lakelog.coordinator.transaction.endings import Endings, Marker, _Job
from lakelog.coordinator.transaction.state import Transaction
from lakelog.coordinator.transaction.transitions import End, Ended, Known
from lakelog.metadata import image as metadata_image
from lakelog.metadata.controller import brokers
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan as MetadataPlan
from lakelog.metadata.records import ForgottenEpochs
from lakelog.replica.partition import Partition
from lakelog.server.controller import control_plane, controller
from lakelog.server.coordinators import local
from lakelog.storage.compaction import clean
from lakelog.storage.compaction.transactions import CleanedTransactions
from lakelog.storage.folder import known_logs
from lakelog.storage.folder.directory import LogDirectory
from lakelog.storage.log import AppendResult, Log
from lakelog.storage.marks import PageCacheMark
from lakelog.storage.producers import replay
from lakelog.storage.producers.state import ProducerStateTable
from lakelog.storage.segments import txn_index
from lakelog.storage.segments.txn_index import AbortedTransaction
from simulation.planted_bug import bug
from simulator.checkers.laws import Law
from simulator.plan import EXPIRATION


@bug("no deduplication", Law.ONCE, "idempotent", faults=("slow network", "reset"))
def _no_deduplication(monkeypatch: pytest.MonkeyPatch) -> None:
    admit = ProducerStateTable.admit

    def without(self: ProducerStateTable, *arguments: Any) -> None:
        admit(self, *arguments)

    monkeypatch.setattr(ProducerStateTable, "admit", without)


@bug(
    "producers are forgotten before their time",
    Law.ONCE,
    "idempotent",
    faults=("slow network", "reset", "partition"),
    settings={EXPIRATION: "60000"},
)
def _forgotten_early(monkeypatch: pytest.MonkeyPatch) -> None:
    remove = ProducerStateTable.remove_expired

    def hasty(self: ProducerStateTable, now_ms: int) -> int:
        return remove(self, now_ms + self.expiration_ms)

    monkeypatch.setattr(ProducerStateTable, "remove_expired", hasty)


@bug(
    "producers are forgotten in the middle of a transaction",
    Law.COMMITTED_ONLY,
    "transactions",
    settings={EXPIRATION: "1000"},
)
def _forgotten_amid(monkeypatch: pytest.MonkeyPatch) -> None:
    def remove(self: ProducerStateTable, now_ms: int) -> int:
        kept = {
            number: entry
            for number, entry in self.entries.items()
            if now_ms - entry.last_timestamp < self.expiration_ms
        }
        count = len(self.entries) - len(kept)
        self.entries = kept
        return count

    monkeypatch.setattr(ProducerStateTable, "remove_expired", remove)


@bug("a repeated batch gets another offset", Law.SAME_BATCH, "idempotent")
def _another_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    repeated = Log._repeated

    def next_to_it(self: Log, *arguments: Any) -> AppendResult:
        result = repeated(self, *arguments)
        return result._replace(base_offset=result.base_offset + 1)

    monkeypatch.setattr(Log, "_repeated", next_to_it)


@bug("a snapshot is a sequence ahead", Law.TAKEN, "idempotent", faults=("stop",))
def _sequence_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    load = ProducerStateTable.load

    def ahead(self: ProducerStateTable, entries: Any) -> None:
        for entry in entries.values():
            for number, batch in enumerate(entry.batches):
                entry.batches[number] = batch._replace(last_sequence=batch.last_sequence + 1)
        load(self, entries)

    monkeypatch.setattr(ProducerStateTable, "load", ahead)


@bug(
    "producer ids are given out twice",
    Law.NEW_IDENTITY,
    "idempotent",
    faults=("kill", "client crash"),
)
def _producer_ids_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        controller, "plan_producer_ids", lambda image, node: MetadataPlan((), range(1000))
    )


@bug(
    "epochs that may be lost are forgotten at a clean stop",
    Law.NEW_IDENTITY,
    "transactions",
    faults=("power", "stop"),
    seconds=25.0,
)
def _trusts_after_a_clean_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    forget, clean_starts = brokers.plan_forget_epochs, [False]

    def note(directory: LogDirectory) -> bool:
        clean_starts.append(directory.clean)
        return True

    def trusting(image: MetadataImage) -> MetadataPlan[None]:
        return MetadataPlan((ForgottenEpochs(0),), None) if clean_starts[-1] else forget(image)

    def apply(draft: Any, record: ForgottenEpochs) -> None:
        draft.forgotten_epochs_end = record.end_id  # without the assertion that notices it first

    monkeypatch.setitem(metadata_image._APPLY, ForgottenEpochs, apply)
    monkeypatch.setattr(LogDirectory, "has_lost", property(note))
    monkeypatch.setattr(control_plane, "plan_forget_epochs", trusting)


@bug(
    "the page cache is believed after a power failure",
    Law.NEW_IDENTITY,
    "transactions",
    faults=("power",),
    seconds=25.0,
)
def _page_cache_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MemoryDisk, "page_cache_id", lambda self, path: "boot 1")


@bug(
    "kill -9 is treated as a power failure",
    Law.IDENTITY_KEPT,
    "transactions",
    faults=("kill", "client crash"),
)
def _kills_forget(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PageCacheMark, "find", lambda self: None)


@bug("an orphaned transaction is left hanging", Law.ENDS, "transactions", faults=("power",))
def _left_to_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "end_hanging", lambda *arguments: None)


@bug("an epoch is used twice", Law.NEW_IDENTITY, "transactions", faults=("client crash",))
def _epoch_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    initialised = transitions.initialised

    def same(current: Any, expected: Any, *rest: Any, **named: Any) -> Any:
        new = initialised(current, expected, *rest, **named)
        if current is None or new.state.is_ending or new.producer_id != current.producer_id:
            return new
        return replace(new, producer_epoch=current.producer_epoch)

    monkeypatch.setattr(producers, "initialised", same)


@bug("older epochs may write", Law.FENCED, "transactions", faults=("clock",), seconds=25.0)
def _older_may_write(monkeypatch: pytest.MonkeyPatch) -> None:
    admit, verify = ProducerStateTable.admit, Partition.start_verification

    def is_old(table: ProducerStateTable, producer_id: int, epoch: int) -> bool:
        known = table.entries.get(producer_id)
        return known is not None and epoch < known.epoch

    def admit_all(self: ProducerStateTable, fields: Any, *rest: Any) -> Any:
        if is_old(self, *fields[9:11]):
            return None
        return admit(self, fields, *rest)

    def verify_newer(
        self: Partition, producer_id: int, epoch: int, *rest: Any, **named: Any
    ) -> Any:
        if is_old(self.log.producers, producer_id, epoch):
            return None
        return verify(self, producer_id, epoch, *rest, **named)

    monkeypatch.setattr(ProducerStateTable, "admit", admit_all)
    monkeypatch.setattr(Partition, "start_verification", verify_newer)


@bug("a transaction ends before its time", Law.IN_TIME, "transactions")
def _too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    initialised = transitions.initialised

    def hasty(*arguments: Any, **named: Any) -> Any:
        return replace(initialised(*arguments, **named), timeout_ms=200)

    monkeypatch.setattr(producers, "initialised", hasty)


@bug(
    "the end of a transaction cannot be repeated",
    Law.ANSWERS,
    "transactions",
    faults=("slow network",),
)
def _end_not_repeated(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = transitions.ended

    def refusing(known: Known, end: End, *rest: Any) -> Ended:
        decided = ended(known, end, *rest)
        if decided.step is None and decided.producer is not None:
            raise KafkaError(ErrorCode.INVALID_TXN_STATE)
        return decided

    monkeypatch.setattr(producers, "ended", refusing)


@bug("one partition of a transaction gets the other marker", Law.WHOLE, "transactions")
def _other_marker(monkeypatch: pytest.MonkeyPatch) -> None:
    marker = _Job.marker

    def mixed(self: _Job, key: Any) -> Marker:
        made = marker(self, key)
        others = self.ending.partitions - {key}
        return made._replace(commit=made.commit == (not others or key < min(others)))

    monkeypatch.setattr(_Job, "marker", mixed)


@bug("completed markers are not noted", Law.RESTS, "transactions", seconds=5.0)
def _never_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgotten(self: Endings, name: str, ending: Transaction, _: object) -> Any:
        return self.unmarked(name, ending)

    monkeypatch.setattr(Endings, "marked", forgotten)


@bug("last stable offset one too high", Law.COMMITTED_ONLY, "transactions")
def _stable_too_high(monkeypatch: pytest.MonkeyPatch) -> None:
    stable: Callable[[Log], int] = vars(Log)["last_stable_offset"].fget
    raised = property(lambda self: min(stable(self) + 1, self.log_end_offset))
    monkeypatch.setattr(Log, "last_stable_offset", raised)


@bug("readers of committed records read all", Law.BELOW_STABLE, "transactions")
def _beyond_stable(monkeypatch: pytest.MonkeyPatch) -> None:
    read = Partition.read

    def further(self: Partition, offset: int, max_bytes: int, **named: Any) -> Any:
        return read(self, offset, max_bytes, **{**named, "end": self.watermark.offset})

    monkeypatch.setattr(Partition, "read", further)


@bug("aborted transactions are not returned", Law.COMMITTED_ONLY, "transactions")
def _no_aborted_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Log, "aborted_transactions", lambda *arguments, **named: [])


@bug("a start passes markers over", Law.STABLE_FORWARD, "transactions", faults=("kill",))
def _markers_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    right = replay.replay

    def careless(*arguments: Any) -> list[AbortedTransaction]:
        with pytest.MonkeyPatch.context() as inner:
            inner.setattr(ProducerStateTable, "end_transaction", lambda *rest, **named: None)
            return right(*arguments)

    monkeypatch.setattr(replay, "replay", careless)


@bug("offsets of aborted transactions are kept", Law.OFFSET_DECIDED, "transactions")
def _offsets_of_aborted(monkeypatch: pytest.MonkeyPatch) -> None:
    end = PendingOffsets.end

    def commit(self: PendingOffsets, producer_id: int, *, commit: bool) -> Any:
        return end(self, producer_id, commit=True)

    monkeypatch.setattr(PendingOffsets, "end", commit)


@bug("aborted records return by compaction", Law.COMMITTED_ONLY, "compaction", seeds=20)
def _aborted_return(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clean, "CleanedTransactions", lambda aborted: CleanedTransactions(()))


@bug("a gap in a sequence is taken", Law.NO_GAP, "idempotent")
@bug(
    "batches after a failed batch are accepted",
    Law.IN_ORDER,
    "idempotent",
    faults=("disk full", "disk error", "kill"),
    seconds=40.0,
    seeds=20,
)
def _gap_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ProducerStateTable, "_gap_before", lambda *arguments: None)


def _fence_by(monkeypatch: pytest.MonkeyPatch, epochs: int) -> None:
    fenced = transitions.fenced

    def rising(current: Transaction, now_ms: int) -> Transaction:
        return replace(fenced(current, now_ms), producer_epoch=current.producer_epoch + epochs)

    for module in (transitions, endings):
        monkeypatch.setattr(module, "fenced", rising)


@bug("a fence leaves the epoch", Law.WHOLE, "transactions", seeds=20)
def _fence_leaves_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    _fence_by(monkeypatch, 0)


@bug("a fence rises by one alone", Law.FENCED, "transactions")
def _fence_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    _fence_by(monkeypatch, 1)


@bug("a fence burns epochs", Law.EPOCHS_SPARED, "transactions")
def _fence_burns(monkeypatch: pytest.MonkeyPatch) -> None:
    _fence_by(monkeypatch, 4)


@bug(
    "a start takes the newest snapshot for the whole log",
    Law.TAKEN,
    "idempotent",
    "transactions",
    faults=("kill",),
    seeds=20,
)
def _snapshot_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rebuild = Log.rebuild_producers

    def from_snapshot(self: Any, reindexed: Any = ()) -> None:
        start, entries = self.snapshots.newest(self.log_end_offset)
        if start < 0:
            rebuild(self, reindexed)
            return
        self.producers.load(entries)
        self.producers.end_offset = self.log_end_offset

    monkeypatch.setattr(Log, "rebuild_producers", from_snapshot)


@bug(
    "the first cleaning takes the markers",
    Law.KEYS_KEPT,
    "compaction",
    seeds=20,
    seconds=25.0,
)
def _markers_go(monkeypatch: pytest.MonkeyPatch) -> None:
    filter_batch = clean._Cleaning._filter

    def without(self: Any, batch: bytes, header: Any, is_end: bool) -> Any:
        kept: Any = filter_batch(self, batch, header, is_end)
        empty: Any = self._empty(header, is_end)
        return empty if header.is_control else kept

    monkeypatch.setattr(clean._Cleaning, "_filter", without)


@bug(
    "the newest entry of a transaction index is lost when it is read",
    Law.COMMITTED_ONLY,
    "transactions",
    faults=("stop",),
)
def _entry_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = txn_index.decode_aborted

    def shorter(*arguments: Any) -> Any:
        return (decode(*arguments) or [])[:-1]

    monkeypatch.setattr(txn_index, "decode_aborted", shorter)


@bug(
    "the checksums of transaction indexes are not known",
    Law.COMMITTED_ONLY,
    "transactions",
    faults=("power",),
    seeds=20,
    seconds=30.0,
    settings={
        "log.flush.interval.messages": "1",
        "replica.high.watermark.checkpoint.interval.ms": "300",
    },
)
def _index_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are never synced; a power failure that takes one is noticed by its checksum."""
    known_of = known_logs.known_of

    def knowing_less(*arguments: Any) -> Any:
        return known_of(*arguments)._replace(aborted=())

    monkeypatch.setattr(known_logs, "known_of", knowing_less)
