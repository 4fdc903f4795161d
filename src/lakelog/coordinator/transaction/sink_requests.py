"""Requests about sinks: one method for each, which returns a future and does not raise."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.host import ShardHost
from lakelog.coordinator.replies import answered, settle
from lakelog.coordinator.shard import Now, Reply, Result
from lakelog.coordinator.transaction.commit_sets import RefusedError
from lakelog.coordinator.transaction.config import TransactionConfig
from lakelog.coordinator.transaction.ids import Decision
from lakelog.coordinator.transaction.producer_id_reservations import ProducerIdReservations
from lakelog.coordinator.transaction.receipts import LastSequences, ProducerLogs, WrittenTo
from lakelog.coordinator.transaction.shard import TransactionShard
from lakelog.coordinator.transaction.sink_reply import SinkReply, sink_reply
from lakelog.coordinator.transaction.state import NO_PRODUCER_ID, Sink
from lakelog.coordinator.transaction.transitions import Producer
from lakelog.protocol.commit_sets import CONTENT_BYTES_MAX, CommitSet
from lakelog.protocol.end_txn import EndTxnRequest, EndTxnResponse
from lakelog.protocol.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from lakelog.runtime.api import Tasks

BATCH_END = 1 << 62
TEXT_MAX = 256
"""Longest query id or run id, in characters."""

T = TypeVar("T")
_Answer = Callable[[SinkReply], None]
_Decide = Callable[[TransactionShard, Now, int, _Answer, Callable[[], None]], Decision]


class SinkRequests:
    """The sinks coordinated by this broker."""

    def __init__(
        self,
        host: ShardHost[TransactionShard],
        tasks: Tasks,
        reservations: ProducerIdReservations,
        logs: ProducerLogs,
        config: TransactionConfig,
    ) -> None:
        self._host = host
        self._tasks = tasks
        self._reservations = reservations
        self._logs = logs
        self._config = config
        self._looking: set[Reply[None]] = set()

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
            return self._submit(
                name,
                lambda shard, now, new_id, answer, reserve: shard.sinks.open_child(
                    now, name, producer, timeout_ms, new_id, answer, reserve
                ),
                respond,
            )
        is_valid = _is_text(run.query_id) and _is_text(run.run_id) and 0 <= run.batch < BATCH_END
        if parent is not None or "/" in name or not is_valid:
            return answered(self._tasks, respond(SinkReply(ErrorCode.INVALID_REQUEST)))
        return self._submit(
            name,
            lambda shard, now, new_id, answer, reserve: shard.sinks.begin_run(
                now, name, run, timeout_ms, new_id, answer, reserve
            ),
            respond,
        )

    def end(self, request: EndTxnRequest) -> Reply[EndTxnResponse]:
        """Decide EndTxn with a commit set, or the removal of a sink."""
        name, wanted = request.transactional_id, request.commit_set
        if request.removes_sink:
            return self._submit(
                name,
                lambda shard, now, new_id, answer, reserve: shard.sinks.remove(
                    now, name, new_id, answer, reserve
                ),
                SinkReply.ended,
            )
        assert wanted is not None
        if not _is_valid(wanted, is_commit=request.committed):
            return answered(self._tasks, SinkReply(ErrorCode.INVALID_REQUEST).ended())
        producer = Producer(request.producer_id, request.producer_epoch)
        if request.committed:
            return self._commit(name, producer, wanted)
        return self._submit(
            name,
            lambda shard, now, new_id, answer, reserve: shard.sinks.abort(
                now, name, producer, wanted, answer
            ),
            SinkReply.ended,
        )

    def _commit(self, name: str, producer: Producer, wanted: CommitSet) -> Reply[EndTxnResponse]:
        """Decide a commit twice: before and after the logs of the winners were read."""
        future = self._tasks.future()

        def answer(reply: SinkReply) -> None:
            settle(future, reply.ended())

        def refuse(code: ErrorCode) -> None:
            answer(SinkReply(code))

        def decide(found: LastSequences | None) -> None:
            def commit(shard: TransactionShard, now: Now) -> Decision:
                return shard.sinks.commit(now, name, producer, wanted, found, answer, look)

            self._host.submit(name, partial(_decision, commit, name, answer), refuse)

        def look(places: list[WrittenTo]) -> None:
            looking = self._look(places, decide, refuse)
            task = self._tasks.spawn(looking, name=f"records of {name}")
            self._looking.add(task)
            task.add_done_callback(self._looking.discard)

        decide(None)
        return future

    async def _look(
        self,
        places: list[WrittenTo],
        decide: Callable[[LastSequences], None],
        refuse: Callable[[ErrorCode], None],
    ) -> None:
        try:
            found = await self._logs.last_sequences(places)
        except (KafkaError, OSError):
            # Retriable: a leader is being elected, or its broker starts again.
            refuse(ErrorCode.CONCURRENT_TRANSACTIONS)
        else:
            decide(found)

    def _submit(self, name: str, decide: _Decide, respond: Callable[[SinkReply], T]) -> Reply[T]:
        future = self._tasks.future()

        def answer(reply: SinkReply) -> None:
            settle(future, respond(reply))

        def refuse(code: ErrorCode) -> None:
            answer(SinkReply(code))

        def decided(new_id: int) -> None:
            def begin(shard: TransactionShard, now: Now) -> Decision:
                return decide(shard, now, new_id, answer, reserve)

            self._host.submit(name, partial(_decision, begin, name, answer), refuse)

        def reserve() -> None:
            self._reservations.reserve(name, decided, refuse)

        decided(NO_PRODUCER_ID)
        return future


def _decision(
    decide: Callable[[TransactionShard, Now], Decision],
    name: str,
    answer: _Answer,
    shard: TransactionShard,
    now: Now,
) -> Decision:
    """Return the decision of a shard; answer a refusal with its reason and the control record."""
    try:
        return decide(shard, now)
    except RefusedError as error:
        answer(_refusal(shard, name, error))
        return Result()


def _refusal(shard: TransactionShard, name: str, error: RefusedError) -> SinkReply:
    current = shard.transactions.get(name)
    state = None
    if current is not None and isinstance(current.part, Sink):
        state = sink_reply(current).sink
    return SinkReply(error.code, sink=state, refused=error.refused)


def _is_valid(wanted: CommitSet, *, is_commit: bool) -> bool:
    if not 0 <= wanted.batch < BATCH_END or len(wanted.content) > CONTENT_BYTES_MAX:
        return False
    return is_commit or not wanted.winners


def _is_text(text: str) -> bool:
    return 0 < len(text) <= TEXT_MAX
