"""The steps of sinks and their children: which are allowed, and the states after each (ADR 8).

These are plain functions of values, like `transitions`. They reject a request by raising
`RefusedError`, or `KafkaError(CONCURRENT_TRANSACTIONS)` while a state is being written.

The receipts of a set are compared with the logs that hold the records. A task leaves its receipt
after the acknowledgement of its last record. A partition may have lost some of these records since:
with an unclean election, or with a broker whose log lost its end in a crash. Without a check, the
set would be committed with fewer records than its tasks wrote. A child has an epoch of its own, so
its sequences begin at 0 in each partition, and the log accepts them without a gap. So the last
sequence in the log is the number of its records.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from hashlib import blake2b
from typing import NoReturn

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.keys import ChildId
from lakelog.coordinator.transaction.requests import NO_SEQUENCE, LastSequences, WrittenTo
from lakelog.coordinator.transaction.state import (
    EPOCH_LAST,
    NO_BATCH,
    NO_EPOCH,
    Child,
    Sink,
    Transaction,
    TransactionState,
    TransactionVersion,
)
from lakelog.coordinator.transaction.transitions import Known, Producer, needs_producer_id
from lakelog.protocol.commit_sets import CommitSet, Refusal, RefusedCommitSet, SinkRun, Winner

_DIGEST_BYTES = 8
FORMER_RUNS_MAX = 8192
"""Runs of a sink that end without a commit, one after another."""
EPOCHS_LEFT_MIN = 3
"""Epochs of a producer id that a child may use: its own, and two for an abort that fences it."""

_S = TransactionState


class RefusedError(KafkaError):
    """A refusal with its reason. The client gets INVALID_TXN_STATE, and both in tagged fields."""

    def __init__(self, reason: Refusal, message: str) -> None:
        super().__init__(ErrorCode.INVALID_TXN_STATE, message)
        self.refused = RefusedCommitSet(reason=reason, message=message)


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=_DIGEST_BYTES).digest()


def refuse_sink() -> NoReturn:
    """Raise `RefusedError(IS_A_SINK)`: an ordinary request names a sink or its child."""
    text = "the transactional id belongs to a sink; use another one"
    raise RefusedError(Refusal.IS_A_SINK, text)


# Runs


def needs_parent_id(id_state: Known, run: SinkRun) -> bool:
    """Return whether `run_begun` needs a new producer id. Raises as `run_begun`."""
    if id_state.current is None:
        return True
    sink = sink_of(id_state.current)
    _check_run(sink, run)
    if sink.run_id == run.run_id:
        return False
    return needs_producer_id(id_state.current, None, may_be_old=id_state.may_be_old)


def run_begun(
    id_state: Known, run: SinkRun, timeout_ms: int, now_ms: int, new_producer_id: int
) -> Transaction:
    """Return the sink with this run; the present state itself if the run continues.

    A new run has a new epoch, which fences the run before it.

    Raises `RefusedError` with NOT_A_SINK, ANOTHER_QUERY, RUN_FENCED, BATCH_COMMITTED, BATCH_AHEAD
    or TOO_MANY_RUNS.
    """
    current = id_state.current
    if current is None:
        return Transaction(
            producer_id=new_producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            last_update_ms=now_ms,
            previous_producer_id=new_producer_id,
            part=Sink(query_id=run.query_id, run_id=run.run_id, expires=run.expires),
        )
    sink = sink_of(current)
    _check_run(sink, run)
    if sink.run_id == run.run_id:
        return current
    return with_run(id_state, run.run_id, now_ms, new_producer_id, expires=run.expires)


def with_run(
    id_state: Known, run_id: str, now_ms: int, new_producer_id: int, *, expires: bool
) -> Transaction:
    """Return the sink with another run id and a higher epoch; its present run never returns."""
    current = id_state.current
    assert current is not None
    sink = sink_of(current)
    former = sink.former_runs
    if sink.run_id:
        former += _digest(sink.run_id)
    part = replace(sink, run_id=run_id, former_runs=former, expires=expires)
    if needs_producer_id(current, None, may_be_old=id_state.may_be_old):
        identity = Producer(new_producer_id, 0)
    else:
        identity = Producer(current.producer_id, current.producer_epoch + 1)
    return replace(
        current,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        previous_producer_id=current.producer_id,
        last_update_ms=now_ms,
        last_epoch=NO_EPOCH,
        part=part,
    )


def sink_of(current: Transaction | None) -> Sink:
    """Return the control record. Raises `RefusedError(NOT_A_SINK)`."""
    if current is None:
        raise RefusedError(Refusal.NOT_A_SINK, "the sink is unknown to its coordinator")
    if not isinstance(current.part, Sink):
        text = "the transactional id belongs to an ordinary producer; use another sink id"
        raise RefusedError(Refusal.NOT_A_SINK, text)
    return current.part


def _check_run(sink: Sink, run: SinkRun) -> None:
    """Raise `RefusedError` unless this run continues, or is new and may begin.

    A fenced run never returns. Runs that are fenced while batch C is the next one are remembered
    until C + 1 is committed. Each of them was at C or before, and stays there: a run begins another
    batch only after its own is committed. So from then on its batch is below the last committed
    one, and is refused for that.
    """
    if sink.query_id != run.query_id:
        _refuse_query(sink, run.query_id)
    if sink.run_id == run.run_id:
        return
    if _is_in(sink.former_runs, run.run_id) or _is_in(sink.earlier_runs, run.run_id):
        _refuse_run(sink, run.run_id)
    # A crash between the commit and Spark's own record of it repeats the last batch.
    if run.batch + 1 < sink.next_batch:
        check_uncommitted(sink, run.batch)
    _check_not_ahead(sink, run.batch)
    if len(sink.former_runs) >= FORMER_RUNS_MAX * _DIGEST_BYTES:
        text = (
            f"{FORMER_RUNS_MAX} runs have begun one after another, and none has committed batch "
            f"{run.batch}: no other run may begin, because fenced runs could not be recognised"
        )
        raise RefusedError(Refusal.TOO_MANY_RUNS, text)


def _is_in(digests: bytes, run_id: str) -> bool:
    digest = _digest(run_id)
    starts = range(0, len(digests), _DIGEST_BYTES)
    return any(digests[start : start + _DIGEST_BYTES] == digest for start in starts)


def _refuse_query(sink: Sink, query_id: str) -> None:
    text = (
        f"the sink belongs to query {sink.query_id}, not {query_id}: a query with a new checkpoint "
        "needs another sink id, or a new generation of it"
    )
    raise RefusedError(Refusal.ANOTHER_QUERY, text)


def _refuse_run(sink: Sink, run_id: str) -> None:
    newer = f"run {sink.run_id}" if sink.run_id else "an administrator"
    raise RefusedError(Refusal.RUN_FENCED, f"run {run_id} was fenced by {newer}")


# Children


def check_parent(parent: Transaction | None, producer: Producer, batch: int) -> Sink:
    """Return the sink if a child of this batch may begin or write.

    Raises `RefusedError` with NOT_A_SINK, RUN_FENCED, BATCH_COMMITTED or BATCH_AHEAD.
    """
    sink = sink_of(parent)
    assert parent is not None
    _check_identity(parent, producer)
    check_uncommitted(sink, batch)
    _check_not_ahead(sink, batch)
    return sink


def _check_not_ahead(sink: Sink, batch: int) -> None:
    if sink.next_batch != NO_BATCH and batch > sink.next_batch:
        text = f"batch {batch} is ahead: the next batch of the sink is {sink.next_batch}"
        raise RefusedError(Refusal.BATCH_AHEAD, text)


def _check_identity(parent: Transaction, producer: Producer) -> None:
    if producer != (parent.producer_id, parent.producer_epoch):
        text = f"the run with producer epoch {producer.epoch} was fenced by a newer run"
        raise RefusedError(Refusal.RUN_FENCED, text)


def check_uncommitted(sink: Sink, batch: int) -> None:
    """Raise `RefusedError(BATCH_COMMITTED)` for a batch below the next one."""
    if batch < sink.next_batch:
        text = f"batch {batch} is committed: the next batch of the sink is {sink.next_batch}"
        raise RefusedError(Refusal.BATCH_COMMITTED, text)


def is_stale(parent: Transaction | None, child: Child, batch: int) -> bool:
    """Return whether a child can never win: its run is fenced, or its batch is committed."""
    if parent is None or not isinstance(parent.part, Sink):
        return True
    if (child.parent_id, child.parent_epoch) != (parent.producer_id, parent.producer_epoch):
        return True
    return batch < parent.part.next_batch


def may_reuse(id_state: Known) -> bool:
    """Return whether a new child may continue with the producer id of this one."""
    current = id_state.current
    if current is None or not id_state.is_complete or id_state.may_be_old:
        return False
    if not (current.state is _S.EMPTY or current.state.has_ended):
        return False
    return current.producer_epoch + EPOCHS_LEFT_MIN <= EPOCH_LAST


def child_begun(former: Transaction, parent: Producer, timeout_ms: int, now_ms: int) -> Transaction:
    """Return a new child with the producer id of a finished one, at the next epoch."""
    return Transaction(
        producer_id=former.producer_id,
        producer_epoch=former.producer_epoch + 1,
        timeout_ms=timeout_ms,
        last_update_ms=now_ms,
        previous_producer_id=former.producer_id,
        part=Child(*parent),
    )


# The end of a batch


def check_set(parent: Transaction | None, producer: Producer, commit_set: CommitSet) -> Sink:
    """Return the sink if this run may end a batch.

    Raises `RefusedError` with NOT_A_SINK, ANOTHER_QUERY or RUN_FENCED.
    """
    sink = sink_of(parent)
    assert parent is not None
    if sink.query_id != commit_set.query_id:
        _refuse_query(sink, commit_set.query_id)
    _check_identity(parent, producer)
    if sink.run_id != commit_set.run_id:
        _refuse_run(sink, commit_set.run_id)
    return sink


def digest_of(commit_set: CommitSet) -> bytes:
    """Return the digest of a set, which recognises a repeated request."""
    rows = sorted(
        f"{winner.transactional_id}:{winner.producer_id}:{winner.producer_epoch}:"
        + ",".join(sorted(f"{name}-{index}={records}" for name, index, records in _written(winner)))
        for winner in commit_set.winners
    )
    return _digest("\n".join((str(commit_set.batch), *rows)))


def _written(winner: Winner) -> Iterable[tuple[str, int, int]]:
    return (
        (topic.name, row.index, row.records) for topic in winner.topics for row in topic.partitions
    )


def batch_committed(parent: Transaction, commit_set: CommitSet, now_ms: int) -> Transaction | None:
    """Return the sink after the commit of a batch; None if this set is committed already.

    Raises `RefusedError` with BATCH_COMMITTED or BATCH_AHEAD.
    """
    sink, digest = sink_of(parent), digest_of(commit_set)
    if commit_set.batch + 1 == sink.next_batch and digest == sink.last_set:
        return None
    identity = Producer(parent.producer_id, parent.producer_epoch)
    check_parent(parent, identity, commit_set.batch)
    part = replace(
        sink,
        next_batch=commit_set.batch + 1,
        last_set=digest,
        former_runs=b"",
        earlier_runs=sink.former_runs,
        content=bytes(commit_set.content),
    )
    return replace(parent, last_update_ms=now_ms, last_epoch=NO_EPOCH, part=part)


def winner_committed(
    id_state: Known,
    child: ChildId | None,
    winner: Winner,
    sink_id: str,
    parent: Producer,
    batch: int,
    now_ms: int,
) -> Transaction | None:
    """Return the Prepare state of a winner; None for a child that wrote nothing.

    Args:
        id_state: the state of the winner's transactional id.
        child: its parsed id.
        parent: producer id and epoch of the sink.

    Raises `RefusedError` with NOT_OPEN or CONTENT_DIFFERS, `KafkaError(CONCURRENT_TRANSACTIONS)`.
    """
    name = winner.transactional_id
    if child is None or (child.sink_id, child.batch) != (sink_id, batch):
        text = f"{name} is not a task of batch {batch} of this sink"
        raise RefusedError(Refusal.CONTENT_DIFFERS, text)
    if not id_state.is_complete:
        raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
    written = {(topic, index): records for topic, index, records in _written(winner)}
    if any(records <= 0 for records in written.values()):
        text = f"{name} has no records in a partition of its receipt"
        raise RefusedError(Refusal.CONTENT_DIFFERS, text)
    current = _open(id_state.current, winner, parent, is_empty=not written)
    if written.keys() != current.partitions:
        text = (
            f"the transaction of {name} has {len(current.partitions)} partitions, its receipt "
            f"{len(written)} or others"
        )
        raise RefusedError(Refusal.CONTENT_DIFFERS, text)
    if not written:
        return None
    assert current.producer_epoch <= EPOCH_LAST, "a client never has the highest epoch"
    return replace(
        current,
        state=_S.PREPARE_COMMIT,
        producer_epoch=current.producer_epoch + 1,
        last_epoch=current.producer_epoch,
        previous_producer_id=current.producer_id,
        client_version=TransactionVersion.BUMPING,
        last_update_ms=now_ms,
    )


def _open(
    current: Transaction | None, winner: Winner, parent: Producer, *, is_empty: bool
) -> Transaction:
    """Return the winner's transaction if it is open. Raises `RefusedError(NOT_OPEN)`."""
    name = winner.transactional_id
    if current is None or current.part != Child(*parent):
        raise RefusedError(Refusal.NOT_OPEN, f"the task {name} is unknown, or of an earlier run")
    is_same = (winner.producer_id, winner.producer_epoch) == (
        current.producer_id,
        current.producer_epoch,
    )
    if is_same and (current.state is _S.ONGOING or (is_empty and current.state is _S.EMPTY)):
        return current
    aborted = current.state in (_S.PREPARE_ABORT, _S.COMPLETE_ABORT)
    if aborted and current.last_update_ms - current.start_ms >= current.timeout_ms:
        text = (
            f"the transaction of {name} exceeded its timeout of {current.timeout_ms} ms and was "
            "aborted: raise the transaction timeout above the duration of a batch"
        )
        raise RefusedError(Refusal.NOT_OPEN, text)
    raise RefusedError(Refusal.NOT_OPEN, f"the transaction of {name} was aborted or never began")


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
