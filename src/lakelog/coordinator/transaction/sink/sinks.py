"""The sinks of a shard with their children, and the decisions about them (ADR 8).

The index of children is derived by `follow` from replayed records. A child that is finished keeps
its record: the next child continues with its producer id.

A commit or a new run ends other children in the same record batch. A child whose own record is
being written at that moment cannot be part of it. It is stale from then on: it gets no further
partitions and never wins, and it is aborted right after, or when the shard is loaded again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.keys import ChildId, child_id
from lakelog.coordinator.shard import Now, Result, Then
from lakelog.coordinator.transaction.endings import Endings
from lakelog.coordinator.transaction.ids import Decision, TransactionalIds
from lakelog.coordinator.transaction.records import TransactionRecord, encode_record
from lakelog.coordinator.transaction.requests import LastSequences, LogEnds, NewProducerId
from lakelog.coordinator.transaction.sink.commit_sets import (
    RefusedError,
    batch_committed,
    check_parent,
    check_records,
    check_set,
    check_uncommitted,
    child_begun,
    is_stale,
    may_reuse,
    needs_parent_id,
    refuse_sink,
    run_begun,
    sink_of,
    winner_committed,
    with_run,
    written_to,
)
from lakelog.coordinator.transaction.state import (
    NO_PRODUCER_ID,
    Child,
    Sink,
    SinkReply,
    Transaction,
    TransactionState,
    sink_reply,
)
from lakelog.coordinator.transaction.transitions import (
    Known,
    Producer,
    fenced,
    initialised,
    needs_producer_id,
)
from lakelog.protocol.commit_sets import CommitSet, Refusal, SinkRun

CHILDREN_MAX = 10_000
"""Children of one sink, including finished children that wait for their reuse."""

_BATCH_OVERHEAD, _RECORD_OVERHEAD = 61, 32
"""Bytes of a record batch without records, and at most of a record without key and value."""

Steps = dict[str, Transaction | None]


@dataclass(slots=True)
class _Family:
    """The children of one sink id."""

    children: dict[str, ChildId] = field(default_factory=dict)
    free: dict[str, None] = field(default_factory=dict)
    """Finished children, the latest last."""


class Sinks:
    """The sinks and children of one partition.

    Args:
        set_bytes_max: limit of the records of one decision, in bytes.
    """

    def __init__(self, ids: TransactionalIds, endings: Endings, set_bytes_max: int) -> None:
        self._ids = ids
        self._endings = endings
        self._set_bytes_max = set_bytes_max
        self._families: dict[str, _Family] = {}

    # The index

    def follow(self, record: TransactionRecord) -> None:
        """Note a committed record, after its replay."""
        name, new = record
        part = None if new is None else new.part
        if isinstance(part, Sink):
            family = self._families.setdefault(name, _Family())
            for child_name, child in family.children.items():
                self._note(family, child_name, child)
            return
        own_id = child_id(name)
        if part is None:
            self._forget(name, name if own_id is None else own_id.sink_id)
        elif own_id is not None:
            family = self._families.setdefault(own_id.sink_id, _Family())
            family.children[name] = own_id
            self._note(family, name, own_id)

    def _forget(self, name: str, sink_id: str) -> None:
        family = self._families.get(sink_id)
        if family is None:
            return
        family.children.pop(name, None)
        family.free.pop(name, None)
        if not family.children and sink_id not in self._ids.transactions:
            del self._families[sink_id]

    def _note(self, family: _Family, name: str, child: ChildId) -> None:
        """Note whether a child is finished."""
        current = self._ids.transactions[name]
        is_unused = current.state is TransactionState.EMPTY and self._is_stale(name, child)
        if not (is_unused or current.state.has_ended):
            family.free.pop(name, None)
        elif name not in family.free:
            family.free[name] = None

    def _is_stale(self, name: str, child: ChildId) -> bool:
        part = self._ids.transactions[name].part
        assert isinstance(part, Child)
        return is_stale(self._ids.transactions.get(child.sink_id), part, child.batch)

    def children(self, sink_id: str) -> Iterator[tuple[str, Transaction]]:
        """Yield the children of a sink whose transactions have not ended."""
        family = self._families.get(sink_id)
        for name in () if family is None else family.children:
            current = self._ids.transactions[name]
            if current.state is TransactionState.ONGOING or current.state.is_ending:
                yield name, current

    def loaded(self, now: Now) -> list[Decision]:
        """Return the aborts of stale children, which the former coordinator did not write."""
        return [
            self._endings.abort(now, name, self._ids.transactions[name])
            for family in self._families.values()
            for name, child in family.children.items()
            if self._is_open(name) and self._ids.is_complete(name) and self._is_stale(name, child)
        ]

    def _is_open(self, name: str) -> bool:
        return self._ids.transactions[name].state is TransactionState.ONGOING

    # Requests

    def check_writable(self, transactional_id: str) -> None:
        """Raise `KafkaError(PRODUCER_FENCED)` for a stale child.

        Raises `KafkaError(CONCURRENT_TRANSACTIONS)` while a step of its sink is being written, and
        `RefusedError(IS_A_SINK)` for a sink, which has no transaction.
        """
        child = child_id(transactional_id)
        if child is None:
            refuse_sink()
        elif self._is_stale(transactional_id, child):
            raise KafkaError(ErrorCode.PRODUCER_FENCED)
        # The step may make the child stale, and no longer include it: a transaction that begins now
        # would stay open until its timeout.
        elif not self._ids.is_complete(child.sink_id):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

    def begin_run(
        self, now: Now, sink_id: str, run: SinkRun, timeout_ms: int, new_producer_id: int
    ) -> Decision:
        """Begin or continue a run; a new one aborts the children of the run before it.

        Args:
            timeout_ms: of the sink's transactional id, milliseconds.
            new_producer_id: reserved for this request, or `NO_PRODUCER_ID`.

        Raises `RefusedError`, and `KafkaError` with CONCURRENT_TRANSACTIONS or POLICY_VIOLATION.
        """
        id_state = self._ids.find(sink_id)
        if not id_state.is_complete:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        if id_state.current is None:
            self._ids.check_capacity()
        if new_producer_id == NO_PRODUCER_ID and needs_parent_id(id_state, run):
            return Result(need=NewProducerId())
        step = run_begun(id_state, run, timeout_ms, now.wall_ms, new_producer_id)
        if step is id_state.current:
            return Result(reply=sink_reply(step))
        return self._end_children(now, sink_id, {sink_id: step}, sink_reply(step))

    def open_child(
        self,
        now: Now,
        transactional_id: str,
        parent: Producer,
        timeout_ms: int,
        new_producer_id: int,
    ) -> Decision:
        """Begin a child, with the producer id of a finished one if there is any.

        Arguments as for `begin_run`. Raises `RefusedError`, and `KafkaError` with
        CONCURRENT_TRANSACTIONS or POLICY_VIOLATION.
        """
        child = self._expected(transactional_id, parent)
        id_state = self._ids.find(transactional_id)
        if not id_state.is_complete:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        steps: Steps = {}
        former = None if id_state.current is not None else self._finished(child.sink_id)
        if former is not None:
            steps[former] = None
        if former is not None and may_reuse(self._ids.find(former)):
            step = child_begun(self._ids.transactions[former], parent, timeout_ms, now.wall_ms)
        else:
            if id_state.current is None and former is None:
                self._check_child_capacity(child.sink_id)
            needs_id = needs_producer_id(id_state.current, None, may_be_old=id_state.may_be_old)
            if needs_id and new_producer_id == NO_PRODUCER_ID:
                return Result(need=NewProducerId())
            step = _begun(id_state, parent, timeout_ms, now.wall_ms, new_producer_id)
        steps[transactional_id] = step
        reply = SinkReply(ErrorCode.NONE, step.producer_id, step.producer_epoch)
        if step.state.is_ending:
            reply = SinkReply(ErrorCode.CONCURRENT_TRANSACTIONS)
        return self._ids.steps(now, steps, reply, by_client=True)

    def _expected(self, transactional_id: str, parent: Producer) -> ChildId:
        """Return the parts of the id of a child that may begin; raises as `open_child`."""
        child = child_id(transactional_id)
        if child is None:
            text = "a task's id must be <sink id>/<batch>/<partition>/<attempt>"
            raise RefusedError(Refusal.NOT_A_SINK, text)
        if not self._ids.is_complete(child.sink_id):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        check_parent(self._ids.transactions.get(child.sink_id), parent, child.batch)
        return child

    def _finished(self, sink_id: str) -> str | None:
        """Return a finished child that a new one replaces, if there is any.

        It is the latest one whose producer id the new one may use, or else one whose epochs are
        used up: such children would accumulate until they expire.
        """
        family = self._families.get(sink_id)
        spent = None
        for name in () if family is None else reversed(family.free):
            if may_reuse(self._ids.find(name)):
                return name
            if self._ids.is_complete(name):
                spent = name
        return spent

    def is_left(self, transactional_id: str) -> bool:
        """Return whether this is a finished child of a sink that may be forgotten itself."""
        child = child_id(transactional_id)
        family = None if child is None else self._families.get(child.sink_id)
        if child is None or family is None or transactional_id not in family.free:
            return False
        sink = self._ids.transactions.get(child.sink_id)
        return sink is None or (isinstance(sink.part, Sink) and sink.part.expires)

    def _check_child_capacity(self, sink_id: str) -> None:
        self._ids.check_capacity()
        family = self._families.get(sink_id)
        if family is not None and len(family.children) >= CHILDREN_MAX:
            text = f"the sink has {CHILDREN_MAX} tasks in this batch; use fewer tasks"
            raise RefusedError(Refusal.TOO_LARGE, text)

    def commit(
        self,
        now: Now,
        sink_id: str,
        producer: Producer,
        commit_set: CommitSet,
        sequences: LastSequences | None,
    ) -> Decision:
        """Commit a batch: its winners, the next batch, and the abort of all other children.

        Args:
            sequences: of the winners in the logs, None until they have been read.

        Raises `RefusedError`, and `KafkaError(CONCURRENT_TRANSACTIONS)`.
        """
        parent = self._checked(sink_id, producer, commit_set)
        step = batch_committed(parent, commit_set, now.wall_ms)
        if step is None:
            return Result(reply=sink_reply(parent))
        steps: Steps = {sink_id: step}
        partitions: set[int] = set()
        for winner in commit_set.winners:
            name = winner.transactional_id
            child, id_state = child_id(name), self._ids.find(name)
            won = winner_committed(
                id_state, child, winner, sink_id, producer, commit_set.batch, now.wall_ms
            )
            assert child is not None
            if child.partition in partitions:
                text = f"the set has two tasks for partition {child.partition}, also {name}"
                raise RefusedError(Refusal.CONTENT_DIFFERS, text)
            partitions.add(child.partition)
            if won is not None:
                steps[name] = won
        self._check_size(steps)
        targets = written_to(commit_set)
        if targets and sequences is None:
            return Result(need=LogEnds(targets))
        check_records(commit_set, sequences or {})
        return self._end_children(now, sink_id, steps, sink_reply(step), batch=commit_set.batch)

    def abort(self, now: Now, sink_id: str, producer: Producer, commit_set: CommitSet) -> Decision:
        """Abort the children of a batch, and of earlier ones, if it is not committed.

        Raises `RefusedError`, and `KafkaError(CONCURRENT_TRANSACTIONS)`.
        """
        parent = self._checked(sink_id, producer, commit_set)
        check_uncommitted(sink_of(parent), commit_set.batch)
        return self._end_children(now, sink_id, {}, sink_reply(parent), batch=commit_set.batch)

    def remove(self, now: Now, sink_id: str, new_producer_id: int) -> Decision:
        """Forget a sink. First its run is fenced and its children are aborted: the caller retries.

        Arguments as for `begin_run`. Raises `RefusedError(NOT_A_SINK)`, and
        `KafkaError(CONCURRENT_TRANSACTIONS)` until all children have ended.
        """
        id_state = self._ids.find(sink_id)
        if not id_state.is_complete:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        sink = sink_of(id_state.current)
        assert id_state.current is not None
        if sink.run_id:
            needs_id = needs_producer_id(id_state.current, None, may_be_old=id_state.may_be_old)
            if needs_id and new_producer_id == NO_PRODUCER_ID:
                return Result(need=NewProducerId())
            step = with_run(id_state, "", now.wall_ms, new_producer_id, expires=sink.expires)
            later = SinkReply(ErrorCode.CONCURRENT_TRANSACTIONS)
            return self._end_children(now, sink_id, {sink_id: step}, later)
        family = self._families.get(sink_id, _Family())
        if any(self.children(sink_id)) or not all(map(self._ids.is_complete, family.children)):
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)

        # The sink goes last: until then the caller retries.
        steps = self._forgotten((*family.children, sink_id))
        code = ErrorCode.NONE if sink_id in steps else ErrorCode.CONCURRENT_TRANSACTIONS
        return self._ids.steps(now, steps, SinkReply(code))

    def _forgotten(self, names: Iterable[str]) -> Steps:
        """Return tombstones of the first names, as many as one record batch takes; at least one."""
        steps: Steps = {}
        size = _BATCH_OVERHEAD
        for name in names:
            size += _record_bytes(name, None)
            if steps and size > self._set_bytes_max:
                break
            steps[name] = None
        return steps

    def _checked(self, sink_id: str, producer: Producer, commit_set: CommitSet) -> Transaction:
        """Return the sink whose batch ends; raises as `commit`."""
        id_state = self._ids.find(sink_id)
        check_set(id_state.current, producer, commit_set)
        # The step that is being written may be the commit of this very batch.
        if not id_state.is_complete:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS)
        assert id_state.current is not None
        return id_state.current

    def _check_size(self, steps: Steps) -> None:
        size = _batch_bytes(steps)
        if size > self._set_bytes_max:
            text = (
                f"the commit of {len(steps) - 1} tasks with all their partitions needs {size} "
                f"bytes, more than {self._set_bytes_max}: write fewer partitions in each task"
            )
            raise RefusedError(Refusal.TOO_LARGE, text)

    # The end of children

    def _end_children(
        self,
        now: Now,
        sink_id: str,
        steps: Steps,
        reply: SinkReply,
        batch: int | None = None,
    ) -> Decision:
        """Return the decision that writes `steps` and aborts all other open children.

        Args:
            batch: the last batch whose children end; None for all.
        """
        size = _batch_bytes(steps)
        for name, current in self.children(sink_id):
            child = child_id(name)
            assert child is not None
            if name in steps or not self._is_open(name) or not self._ids.is_complete(name):
                continue
            if batch is None or child.batch <= batch:
                step = fenced(current, now.wall_ms)
                size += _record_bytes(name, step)
                # The rest is stale, and aborted after this decision.
                if size <= self._set_bytes_max:
                    steps[name] = step
        if not steps:
            return Result(reply=reply)
        others = Then(partial(self.abort_later, sink_id, batch))
        return self._ids.steps(now, steps, reply, others)

    def abort_later(self, sink_id: str, batch: int | None, now: Now) -> None:
        """Have the timers abort the children that were not part of a decision."""
        for name, _ in self.children(sink_id):
            child = child_id(name)
            assert child is not None
            if self._is_open(name) and (batch is None or child.batch <= batch):
                self._ids.try_again(now, name)


def _batch_bytes(steps: Steps) -> int:
    """Return the size of the record batch that writes the steps."""
    return _BATCH_OVERHEAD + sum(_record_bytes(name, step) for name, step in steps.items())


def _record_bytes(name: str, step: Transaction | None) -> int:
    key, value = encode_record(TransactionRecord(name, step))
    return _RECORD_OVERHEAD + len(key) + len(value or b"")


def _begun(
    id_state: Known, parent: Producer, timeout_ms: int, now_ms: int, new_producer_id: int
) -> Transaction:
    """Return the first or next epoch of a child, or the abort of its open transaction.

    Raises `RefusedError(NOT_A_SINK)` for the id of an ordinary producer.
    """
    if id_state.current is not None and not isinstance(id_state.current.part, Child):
        text = "the transactional id of the task belongs to an ordinary producer"
        raise RefusedError(Refusal.NOT_A_SINK, text)
    step = initialised(
        id_state.current, None, timeout_ms, now_ms, new_producer_id, may_be_old=id_state.may_be_old
    )
    return step if step.state.is_ending else replace(step, part=Child(*parent))
