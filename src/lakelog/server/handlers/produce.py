"""Produce: batches of records are appended to partitions."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.protocol.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from lakelog.replica.partition import Partition
from lakelog.replica.role import current_leader
from lakelog.server.appends.acknowledgement import (
    ACKS_ALL,
    Appended,
    check_entry,
    rejected_result,
    reply_when_settled,
)
from lakelog.server.appends.transaction_verification import (
    ADDS_SINCE,
    TOPIC_IDS_SINCE,
    ProduceCheck,
)
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.fast_path.produce import cache_request
from lakelog.server.requests.context import DEFERRED, Context, Deferred
from lakelog.server.served_api import ServedApi
from lakelog.server.upkeep.stored_checks import NeededCheck
from lakelog.storage.log import AppendResult
from lakelog.storage.preparation import NotReady
from lakelog.storage.producers.beginnings import Verification, VerificationVoidedError
from lakelog.storage.validation import SlowBatchError

_VERIFIED_AGAIN_MAX = 3
"""Times for one batch. Each time, a marker of its producer was written in the meantime."""


def produce(
    broker: Broker, context: Context, request: ProduceRequest
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | Deferred | None] | Deferred | None:
    """Produce (0): appends one record batch per partition and answers with its offsets.

    Batches are checked and patched where they lie in the receive buffer and written with one call.
    With `acks=0` there is no response; an error closes the connection. With `durability=fsync`, the
    response waits for the flush that commits the batch.

    A batch that begins a transaction in a partition waits until the transaction's coordinator has
    verified it (`appends.transaction_verification`). It is copied for that, and later requests of
    its connection wait with it. If a marker voids the answer, the coordinator is asked again.

    The batches are appended at once if possible. Errors are codes of partitions in the response.
    Raises `ProtocolViolation` for an error with `acks=0`, in the returned coroutine if the append
    had to wait.
    """
    if request.transactional_id is None:
        return _produce(broker, context, request, None, _request_error(request))
    try:
        now_ms = broker.clock.wall_ms()
        asks = _verifies(broker, context.version)
        check = ProduceCheck(broker.partitions, request, context.version, now_ms, asks=asks)
    except KafkaError as error:
        return _produce(broker, context, request, None, error)
    if not check.asked:
        return _produce(broker, context, request, check, _request_error(request))
    # Later batches of the producer must not be appended before the waiting ones.
    context.pipelined = False
    return _verify_first(broker, context, request, check)


def refuse(
    broker: Broker, context: Context, request: ProduceRequest, code: ErrorCode
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | Deferred | None] | Deferred | None:
    """Answer each partition with the code.

    Raises `ProtocolViolation` for `acks=0`: without a response only the end of the connection
    shows the client that its records are lost, as in Kafka.
    """
    return _produce(broker, context, request, None, KafkaError(code))


def _verifies(broker: Broker, version: int) -> bool:
    """Return whether to ask the coordinator; operators may trust older producers."""
    return version >= ADDS_SINCE or bool(
        broker.config.get("transaction.partition.verification.enable")
    )


def _records_bytes(entries: Iterable[PartitionProduceData]) -> int:
    return sum(len(entry.records or b"") for entry in entries)


async def _verify_first(
    broker: Broker, context: Context, request: ProduceRequest, check: ProduceCheck
) -> ProduceResponse | Deferred | None:
    entries = (entry for topic in request.topic_data for entry in topic.partition_data)
    with broker.request_memory.holding(context, _records_bytes(entries)):
        check.codes = await check.ask(broker.verification)
    answer = _produce(broker, context, request, check, _request_error(request))
    return await answer if isinstance(answer, Coroutine) else answer


def _produce(
    broker: Broker,
    context: Context,
    request: ProduceRequest,
    check: ProduceCheck | None,
    error_of_all: KafkaError | None,
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | Deferred | None] | Deferred | None:
    """Append all batches, or reject all with `error_of_all`.

    check: the verification of a transactional request; None for any other.
    """
    appends = _Appends(broker, context, request, check)
    responses = []
    for topic in request.topic_data:
        name = topic.topic_id if context.version >= TOPIC_IDS_SINCE else topic.name
        if error_of_all is None:
            results = [appends.append(name, entry) for entry in topic.partition_data]
        else:
            results = [appends.reject(entry, error_of_all) for entry in topic.partition_data]
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=results
            )
        )
    return appends.answer(ProduceResponse(responses=responses))


class _Slow(NamedTuple):
    """A batch that could not be appended at once, and its result.

    `sampled` if it is in the sample whose records are verified.
    """

    topic: str | bytes
    entry: PartitionProduceData
    result: PartitionProduceResponse
    sampled: bool
    needed: NeededCheck | None
    """The job to run before the append, if any."""


class _Appends:
    """The appends of one request: done, rejected, to be done, or to be acknowledged."""

    __slots__ = (
        "_behind",
        "_broker",
        "_check",
        "_context",
        "_failed",
        "_now_ms",
        "_request",
        "_slow",
        "_waiting",
    )

    def __init__(
        self, broker: Broker, context: Context, request: ProduceRequest, check: ProduceCheck | None
    ) -> None:
        self._broker = broker
        self._context = context
        self._request = request
        self._check = check
        self._now_ms = broker.clock.wall_ms()
        self._waiting: list[tuple[Appended, PartitionProduceResponse]] = []
        self._slow: list[_Slow] = []
        self._behind: set[tuple[str | bytes, int]] = set()
        """Partitions where an earlier batch waits."""
        self._failed = False

    def append(self, topic: str | bytes, entry: PartitionProduceData) -> PartitionProduceResponse:
        """Append a batch, if possible at once; return its result, which may be completed later."""
        broker, sampling, sampled = self._broker, self._context.connection.sampling, False
        try:
            partition, verification = (
                (broker.partitions.leader(topic, entry.index), None)
                if self._check is None
                else self._check.target(topic, entry)
            )
            check_entry(partition, entry.records, self._context.version, self._check)
            sampled = sampling.left <= 0
            # Even a fast batch waits behind a slow one of its partition: the order of batches in a
            # request is their order in the log.
            if self._behind and (topic, entry.index) in self._behind:
                raise SlowBatchError(sampled=sampled)
            appended = partition.append(
                entry.records,
                self._now_ms,
                acks_all=self._request.acks == ACKS_ALL,
                verification=verification,
                sampled=sampled,
            )
            sampling.note(entry.records, sampled=sampled)
        except (NotReady, SlowBatchError, VerificationVoidedError) as error:
            sampling.note(entry.records or b"", sampled=sampled)
            result = PartitionProduceResponse(index=entry.index)
            self._behind.add((topic, entry.index))
            needed = (partition, error.job) if isinstance(error, NotReady) else None
            self._slow.append(_Slow(topic, entry, result, sampled, needed))
            return result
        except KafkaError as error:
            return self.reject(entry, error)
        result = PartitionProduceResponse(index=entry.index)
        self._complete(result, partition, appended)
        return result

    def reject(self, entry: PartitionProduceData, error: KafkaError) -> PartitionProduceResponse:
        """Count the error of a batch, and return its result."""
        self._failed = self._context.was_rejected = True
        self._broker.requests.errors["Produce", error.code] += 1
        return rejected_result(entry.index, error)

    def answer(
        self, response: ProduceResponse
    ) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | Deferred | None] | Deferred | None:
        """Return the answer, or a coroutine that completes the slow appends first."""
        if self._slow:
            self._keep_slow()
            return self._append_slowly(response)
        return self._answer(response)

    def _complete(
        self, result: PartitionProduceResponse, partition: Partition, appended: AppendResult
    ) -> None:
        """Fill in the result of an append, which may have to wait for its acknowledgement."""
        result.base_offset = appended.base_offset
        result.log_append_time_ms = appended.append_time_ms
        result.log_start_offset = appended.log_start_offset
        if partition.watermark.offset > appended.last_offset:
            return
        # Without `acks=all` the leader's finished write suffices.
        by_leader = self._request.acks != ACKS_ALL
        wait = Appended(partition, appended.last_offset + 1, partition.leader_epoch, by_leader)
        if not by_leader or not wait.is_complete:
            self._waiting.append((wait, result))

    def _keep_slow(self) -> None:
        """Copy the batches out of the receive buffer, which is reused once the handler returns."""
        # Later requests of the connection wait, or their batches would overtake these.
        self._context.pipelined = False
        for one in self._slow:
            one.entry.records = bytearray(one.entry.records or b"")

    async def _append_slowly(self, response: ProduceResponse) -> ProduceResponse | Deferred | None:
        """Append the slow batches one after the other, and complete their results."""
        broker, slow = self._broker, self._slow
        size = _records_bytes(one.entry for one in slow)
        with broker.request_memory.holding(self._context, size):
            needed = [one.needed for one in slow if one.needed is not None]
            if needed:
                await broker.checks.run_and_wait(needed)  # after a failed job the append fails
            for one in slow:
                try:
                    partition, appended = await self._append_one(one)
                except KafkaError as error:
                    if one.sampled:
                        self._context.connection.sampling.repeat()
                    _copy_error(self.reject(one.entry, error), one.result)
                else:
                    self._complete(one.result, partition, appended)
        return self._answer(response)

    async def _append_one(self, one: _Slow) -> tuple[Partition, AppendResult]:
        """Append a batch after its checks, repeating them if the topic's settings changed."""
        broker, topic, entry = self._broker, one.topic, one.entry
        check = self._check
        verification = None if check is None else check.verification(topic, entry.index)
        batch, sampled = entry.records, one.sampled
        verifies = sampled
        repetitions = 0
        while True:
            partition = broker.partitions.leader(topic, entry.index)
            now_ms = broker.clock.wall_ms()
            try:
                appended = partition.append(
                    batch,
                    now_ms,
                    acks_all=self._request.acks == ACKS_ALL,
                    verification=verification,
                    sampled=verifies,
                )
                return partition, appended
            except NotReady as first:
                job = first.job
            except SlowBatchError as error:
                sampled, job = sampled or error.sampled, None
            except VerificationVoidedError as voided:
                repetitions += 1
                verification = await self._verify_again(partition, one, voided, repetitions)
                continue
            if job is not None:
                try:
                    await broker.checks.run_one(partition, job)
                except KafkaError as failure:
                    partition.await_rejected(entry.records or b"", failure)
                    raise
                continue
            config = partition.log.config
            # From the received records each time, not from `batch`: with other settings the last
            # walk may have compressed them differently.
            batch = await broker.slow_batches.walked(entry.records, config, now_ms, sampled=sampled)
            verifies = False

    async def _verify_again(
        self, partition: Partition, one: _Slow, voided: VerificationVoidedError, repetitions: int
    ) -> Verification | None:
        """Return the verification for the next attempt. Raises `KafkaError`."""
        broker, entry, check = self._broker, one.entry, self._check
        assert check is not None, "a batch without a verification was appended with one"
        try:
            # A client that is gone may have given the batch up with its transaction. It must not
            # become part of the next one, which the coordinator would confirm.
            if repetitions > _VERIFIED_AGAIN_MAX or self._context.connection.closed:
                raise voided
            return await check.repeat(broker.verification, one.topic, entry, broker.clock.wall_ms())
        except KafkaError as error:
            partition.await_rejected(entry.records or b"", error)
            raise

    # The answer

    def _answer(self, response: ProduceResponse) -> ProduceResponse | Deferred | None:
        if self._request.acks == 0:
            _check_unanswered(response.responses)
            return None
        if self._failed:
            self._name_leaders(response)
        if not self._waiting:
            return response
        self._acknowledge_later(response)
        return DEFERRED

    def _acknowledge_later(self, response: ProduceResponse) -> None:
        """Reply when all appends are committed, or at the deadline with errors for the others."""
        broker, context = self._broker, self._context

        def complete() -> None:
            for appended, result in self._waiting:
                try:
                    appended.check()
                except KafkaError as error:
                    result.error_code = error.code
                    result.error_message = error.message or None
                    result.current_leader = current_leader(error)
                    self._name_leaders(response)
            context.reply(response)

        changes = [appended for appended, _ in self._waiting]
        deadline = broker.clock.monotonic() + max(self._request.timeout_ms, 0) / 1000
        reply_when_settled(context, changes, complete, broker.purgatory, deadline)

    def _name_leaders(self, response: ProduceResponse) -> None:
        leaders = (
            result.current_leader
            for topic in response.responses
            for result in topic.partition_responses
        )
        response.node_endpoints = self._broker.endpoints_of(self._context.connection, leaders)


def _copy_error(rejected: PartitionProduceResponse, result: PartitionProduceResponse) -> None:
    result.error_code, result.error_message = rejected.error_code, rejected.error_message
    result.base_offset, result.record_errors = rejected.base_offset, rejected.record_errors
    result.current_leader = rejected.current_leader


def _request_error(request: ProduceRequest) -> KafkaError | None:
    if request.acks not in (0, 1, ACKS_ALL):
        return KafkaError(
            ErrorCode.INVALID_REQUIRED_ACKS, f"acks is {request.acks}; expected 0, 1 or -1 (all)"
        )
    return None


def _check_unanswered(responses: list[TopicProduceResponse]) -> None:
    for topic in responses:
        for result in topic.partition_responses:
            if result.error_code:
                raise ProtocolViolation(
                    f"Produce with acks=0 to partition {result.index} failed with "
                    f"{ErrorCode(result.error_code).name}"
                )


APIS = (
    ServedApi(
        ProduceRequest,
        produce,
        done="acks 0, 1 and all; idempotent and transactional producers; errors per record.",
        missing="Versions 0 to 2 are advertised for old librdkafka but close the connection.",
        in_place=True,
        cache_request=cache_request,
        refuse=refuse,
        counts_errors=True,
        advertised="0-13",
    ),
)
