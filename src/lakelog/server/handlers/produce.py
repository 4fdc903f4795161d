"""Produce (0): appends one record batch per partition and answers with its offsets.

Batches are checked and patched where they lie in the receive buffer and written with one call.
With `acks=0` there is no response; an error closes the connection. With `durability=fsync`, the
response waits for the flush that commits the batch.

A batch that begins a transaction in a partition waits until the transaction's coordinator has
verified it (`appends.transaction_verification`). It is copied for that, and later requests of its
connection wait with it.
"""

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
from lakelog.server.appends.acknowledgement import Acknowledgement, Appended
from lakelog.server.appends.entries import ACKS_ALL, check_entry, rejected_result
from lakelog.server.appends.transaction_verification import (
    ADDS_SINCE,
    TOPIC_IDS_SINCE,
    ProduceCheck,
)
from lakelog.server.broker import Broker
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.repeats.produce import learn
from lakelog.server.requests.context import DEFERRED, Context, Deferred
from lakelog.server.served_api import ServedApi
from lakelog.server.upkeep.stored_checks import NeededCheck
from lakelog.storage.log import AppendResult
from lakelog.storage.preparation import NotReady
from lakelog.storage.producers.verification import Verification
from lakelog.storage.validation.batches import SlowBatchError


def handle(
    broker: Broker, context: Context, request: ProduceRequest
) -> ProduceResponse | Coroutine[Any, Any, ProduceResponse | Deferred | None] | Deferred | None:
    """Append the batches, at once if possible.

    Errors are codes of partitions in the response. Raises `ProtocolViolation` for an error with
    `acks=0`, in the returned coroutine if the append had to wait.
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


API = ServedApi(
    ProduceRequest,
    handle,
    done="acks 0, 1 and all; idempotent and transactional producers; errors per record.",
    missing="Versions 0 to 2 are advertised for old librdkafka but close the connection.",
    in_place=True,
    learn=learn,
    refuse=refuse,
    counts_errors=True,
    advertised="0-13",
)


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
    now_ms, version = broker.clock.wall_ms(), context.version
    sampling, sampled = context.connection.sampling, False
    responses = []
    waiting: list[tuple[Appended, PartitionProduceResponse]] = []
    slow: list[_Slow] = []
    behind: set[tuple[str | bytes, int]] = set()  # partitions where an earlier batch waits
    failed = False
    for topic in request.topic_data:
        name = topic.topic_id if version >= TOPIC_IDS_SINCE else topic.name
        results = []
        for entry in topic.partition_data:
            try:
                if error_of_all is not None:
                    raise error_of_all
                partition, verification = (
                    (broker.partitions.leader(name, entry.index), None)
                    if check is None
                    else check.target(name, entry.index)
                )
                check_entry(partition, entry.records, version, check)
                sampled = sampling.left <= 0
                # Even a fast batch waits behind a slow one of its partition: the order of batches
                # in a request is their order in the log.
                if behind and (name, entry.index) in behind:
                    raise SlowBatchError(sampled=sampled)
                result = partition.append(
                    entry.records,
                    now_ms,
                    acks_all=request.acks == ACKS_ALL,
                    verification=verification,
                    sampled=sampled,
                )
                sampling.note(entry.records, sampled=sampled)
                results.append(
                    PartitionProduceResponse(
                        index=entry.index,
                        base_offset=result.base_offset,
                        log_append_time_ms=result.append_time_ms,
                        log_start_offset=result.log_start_offset,
                    )
                )
                if partition.watermark.offset > result.last_offset or not (
                    appended := _to_await(partition, result, request.acks)
                ):
                    broker.purgatory.check_soon(partition.key)
                else:
                    waiting.append((appended, results[-1]))
            except (NotReady, SlowBatchError) as error:
                sampling.note(entry.records or b"", sampled=sampled)
                results.append(PartitionProduceResponse(index=entry.index))
                behind.add((name, entry.index))
                slow.append(_Slow(name, entry, results[-1], sampled, _needed(partition, error)))
            except KafkaError as error:
                results.append(_reject(broker, entry.index, error))
                failed = context.was_rejected = True
        responses.append(
            TopicProduceResponse(
                name=topic.name, topic_id=topic.topic_id, partition_responses=results
            )
        )
    response = ProduceResponse(responses=responses)
    if slow:
        _keep(context, slow)
        return _append_slowly(broker, context, request, check, response, slow, waiting, failed)
    if request.acks and not (waiting or failed):
        return response
    return _answer(broker, context, request, response, waiting, failed)


def _reject(broker: Broker, index: int, error: KafkaError) -> PartitionProduceResponse:
    broker.requests.errors["Produce", error.code] += 1
    return rejected_result(index, error)


def _to_await(partition: Partition, result: AppendResult, acks: int) -> Appended | None:
    """Return the wait for an uncommitted batch; None if the leader's finished write suffices."""
    by_leader = acks != ACKS_ALL
    appended = Appended(partition, result.last_offset + 1, partition.leader_epoch, by_leader)
    return None if by_leader and appended.is_settled else appended


def _answer(
    broker: Broker,
    context: Context,
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: list[tuple[Appended, PartitionProduceResponse]],
    failed: bool,
) -> ProduceResponse | Deferred | None:
    if request.acks == 0:
        _check_unanswered(response.responses)
        return None
    if failed:
        _name_leaders(broker, context, response)
    if not waiting:
        return response
    _acknowledge_later(broker, context, request.timeout_ms, response, waiting)
    return DEFERRED


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


def _needed(partition: Partition, error: NotReady | SlowBatchError) -> NeededCheck | None:
    return (partition, error.job) if isinstance(error, NotReady) else None


def _keep(context: Context, slow: list[_Slow]) -> None:
    """Copy the batches out of the receive buffer, which is reused once the handler returns."""
    # Later requests of the connection wait, or their batches would overtake these.
    context.pipelined = False
    for one in slow:
        one.entry.records = bytearray(one.entry.records or b"")


async def _append_slowly(
    broker: Broker,
    context: Context,
    request: ProduceRequest,
    check: ProduceCheck | None,
    response: ProduceResponse,
    slow: list[_Slow],
    waiting: list[tuple[Appended, PartitionProduceResponse]],
    failed: bool,
) -> ProduceResponse | Deferred | None:
    """Append the slow batches one after the other, and complete their results in `response`."""
    size = _records_bytes(one.entry for one in slow)
    with broker.request_memory.holding(context, size):
        needed = [one.needed for one in slow if one.needed is not None]
        if needed:
            await broker.checks.run_and_wait(needed)  # after a failed job the append fails
        for topic, entry, result, sampled, _ in slow:
            try:
                verification = None if check is None else check.verification(topic, entry.index)
                partition, appended = await _append_one(
                    broker,
                    topic,
                    entry,
                    verification,
                    acks_all=request.acks == ACKS_ALL,
                    sampled=sampled,
                )
            except KafkaError as error:
                if sampled:
                    context.connection.sampling.repeat()
                why = _reject(broker, entry.index, error)
                result.error_code, result.error_message = why.error_code, why.error_message
                result.base_offset, result.record_errors = why.base_offset, why.record_errors
                result.current_leader = why.current_leader
                failed = True
                continue
            result.base_offset = appended.base_offset
            result.log_append_time_ms = appended.append_time_ms
            result.log_start_offset = appended.log_start_offset
            if partition.watermark.offset > appended.last_offset:
                broker.purgatory.check(partition.key)
            elif (awaited := _to_await(partition, appended, request.acks)) is not None:
                waiting.append((awaited, result))
    return _answer(broker, context, request, response, waiting, failed)


async def _append_one(
    broker: Broker,
    topic: str | bytes,
    entry: PartitionProduceData,
    verification: Verification | None,
    *,
    acks_all: bool,
    sampled: bool,
) -> tuple[Partition, AppendResult]:
    """Append a batch after its checks, repeating them if the topic's settings changed."""
    batch, verifies = entry.records, sampled
    while True:
        partition = broker.partitions.leader(topic, entry.index)
        now_ms = broker.clock.wall_ms()
        try:
            appended = partition.append(
                batch, now_ms, acks_all=acks_all, verification=verification, sampled=verifies
            )
            return partition, appended
        except NotReady as first:
            job = first.job
        except SlowBatchError as error:
            sampled, job = sampled or error.sampled, None
        if job is not None:
            await broker.checks.run_one(partition, job)
            continue
        config = partition.log.config
        # From the received records each time, not from `batch`: with other settings the last walk
        # may have compressed them differently.
        batch = await broker.slow_batches.walked(entry.records, config, now_ms, sampled=sampled)
        verifies = False


def _acknowledge_later(
    broker: Broker,
    context: Context,
    timeout_ms: int,
    response: ProduceResponse,
    waiting: list[tuple[Appended, PartitionProduceResponse]],
) -> None:
    """Reply when all appends are committed, or at the deadline with errors for the others."""

    def settle() -> None:
        for appended, result in waiting:
            try:
                appended.check()
            except KafkaError as error:
                result.error_code = error.code
                result.error_message = error.message or None
                result.current_leader = current_leader(error)
                _name_leaders(broker, context, response)
        context.reply(response)

    def fail(error: Exception) -> None:
        context.connection.fail(context.api.name, error)
        if context.parts is None:
            context.complete([])

    appends = [appended for appended, _ in waiting]
    for appended in appends:
        if appended.partition.role.followers:  # they wait for these records
            broker.purgatory.check_soon(appended.partition.key)
    deadline = broker.clock.monotonic() + max(timeout_ms, 0) / 1000
    parked = Acknowledgement(appends, settle, fail).park(broker.purgatory, deadline)
    context.on_abandon = lambda: broker.purgatory.cancel(parked)


def _name_leaders(broker: Broker, context: Context, response: ProduceResponse) -> None:
    response.node_endpoints = broker.endpoints_of(
        context.connection,
        (
            result.current_leader
            for topic in response.responses
            for result in topic.partition_responses
        ),
    )


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
