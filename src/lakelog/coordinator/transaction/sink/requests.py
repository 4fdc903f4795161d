"""Requests about sinks: one method for each, which returns a future and does not raise."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from lakelog.base.errors import ErrorCode
from lakelog.coordinator.requests import answered, complete
from lakelog.coordinator.shard import Now, Reply, Result
from lakelog.coordinator.transaction.ids import Decision, TransactionConfig
from lakelog.coordinator.transaction.requests import Request
from lakelog.coordinator.transaction.sink.commit_sets import RefusedError
from lakelog.coordinator.transaction.sink.sinks import Sinks
from lakelog.coordinator.transaction.state import Sink, SinkReply, Transaction, sink_reply
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.protocol.commit_sets import CONTENT_BYTES_MAX, CommitSet
from lakelog.protocol.transactions import (
    EndTxnRequest,
    EndTxnResponse,
    InitProducerIdRequest,
    InitProducerIdResponse,
)
from lakelog.runtime.api import Tasks

BATCH_END = 1 << 62
TEXT_MAX = 256
"""Longest query id or run id, in characters."""


class _Shard(Protocol):
    @property
    def sinks(self) -> Sinks: ...

    @property
    def transactions(self) -> Mapping[str, Transaction]: ...


_Decide = Callable[[Sinks, Now, Request], Decision]
"""Returns the decision, or its need, which is met in the request. Raises `KafkaError`."""
R = TypeVar("R")


@dataclass(slots=True, kw_only=True, eq=False)
class _SinkRequest(Request):
    respond: Callable[[SinkReply], Any]
    decide_in: _Decide

    def decide(self, shard: _Shard, now: Now) -> Decision:
        """Return the decision; the reply to a refusal has its reason and the control record."""
        try:
            return self.decide_in(shard.sinks, now, self)
        except RefusedError as error:
            return Result(reply=_refusal(shard, self.key, error))

    def answer(self, reply: SinkReply) -> None:
        complete(self.future, self.respond(reply))

    def refuse(self, code: ErrorCode) -> None:
        self.answer(SinkReply(code))


class SinkRequests:
    """The sinks coordinated by this broker.

    Args:
        ask: has the shard of a request's key decide it.
    """

    def __init__(
        self, ask: Callable[[Request], None], tasks: Tasks, config: TransactionConfig
    ) -> None:
        self._ask = ask
        self._tasks = tasks
        self._config = config

    def initialise(self, request: InitProducerIdRequest) -> Reply[InitProducerIdResponse]:
        """Decide InitProducerId with a run or a parent: a sink's run, or a child, begins."""
        name = request.transactional_id or ""
        timeout_ms, run, parent = request.transaction_timeout_ms, request.run, request.parent
        respond = SinkReply.initialised
        if not 0 < timeout_ms <= self._config.timeout_max_ms:
            code = ErrorCode.INVALID_TRANSACTION_TIMEOUT
            return answered(self._tasks, respond(SinkReply(code)))
        if run is None:
            assert parent is not None
            producer = Producer(parent.producer_id, parent.producer_epoch)
            return self._decided(
                name,
                respond,
                lambda sinks, now, asked: sinks.open_child(
                    now, name, producer, timeout_ms, asked.producer_id
                ),
            )
        is_valid = _is_text(run.query_id) and _is_text(run.run_id)
        if parent is not None or "/" in name or not (is_valid and 0 <= run.batch < BATCH_END):
            return answered(self._tasks, respond(SinkReply(ErrorCode.INVALID_REQUEST)))
        return self._decided(
            name,
            respond,
            lambda sinks, now, asked: sinks.begin_run(
                now, name, run, timeout_ms, asked.producer_id
            ),
        )

    def _decided(
        self, name: str, respond: Callable[[SinkReply], R], decide_in: _Decide
    ) -> Reply[R]:
        future: Reply[R] = self._tasks.future()
        self._ask(_SinkRequest(future=future, key=name, respond=respond, decide_in=decide_in))
        return future

    def end(self, request: EndTxnRequest) -> Reply[EndTxnResponse]:
        """Decide EndTxn with a commit set, or the removal of a sink."""
        name, commit_set, respond = request.transactional_id, request.commit_set, SinkReply.ended
        if request.removes_sink:
            return self._decided(
                name,
                respond,
                lambda sinks, now, asked: sinks.remove(now, name, asked.producer_id),
            )
        assert commit_set is not None
        if not _is_valid(commit_set, is_commit=request.committed):
            return answered(self._tasks, respond(SinkReply(ErrorCode.INVALID_REQUEST)))
        producer = Producer(request.producer_id, request.producer_epoch)
        if request.committed:
            return self._decided(
                name,
                respond,
                lambda sinks, now, asked: sinks.commit(
                    now, name, producer, commit_set, asked.sequences
                ),
            )
        return self._decided(
            name, respond, lambda sinks, now, _: sinks.abort(now, name, producer, commit_set)
        )


def _refusal(shard: _Shard, name: str, error: RefusedError) -> SinkReply:
    current = shard.transactions.get(name)
    state = None
    if current is not None and isinstance(current.part, Sink):
        state = sink_reply(current).sink
    return SinkReply(error.code, sink=state, refused=error.refused)


def _is_valid(commit_set: CommitSet, *, is_commit: bool) -> bool:
    if not 0 <= commit_set.batch < BATCH_END or len(commit_set.content) > CONTENT_BYTES_MAX:
        return False
    return is_commit or not commit_set.winners


def _is_text(text: str) -> bool:
    return 0 < len(text) <= TEXT_MAX
