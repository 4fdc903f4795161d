"""Checks of requests before they reach a shard, and the failures of its coordinator."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.commit_sets import CONTENT_BYTES_MAX, CommitSet, SinkParent, SinkRun
from lakelog.protocol.transactions import EndTxnRequest, InitProducerIdRequest
from sink_setup import Producer, Setup, Sinks, winner
from transaction_setup import in_virtual_time

RUN = SinkRun(query_id="q", run_id="r")
PARENT = SinkParent(producer_id=1000, producer_epoch=0)


@in_virtual_time()
async def test_a_run_needs_a_plain_name_and_no_parent(setup: Setup) -> None:
    for name, parent in (("daily/1", None), ("daily", PARENT), ("", None)):
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=1000, run=RUN, parent=parent
        )
        answer = await setup.coordinator.sinks.initialise(request)
        assert answer.error_code == ErrorCode.INVALID_REQUEST, name


@in_virtual_time()
async def test_a_timeout_is_within_the_brokers_limit(setup: Setup) -> None:
    for timeout_ms in (0, setup.config.timeout_max_ms + 1):
        answer = await Sinks(setup).open(Producer(1000, 0), "daily/0/0/0", timeout_ms)
        assert answer.error_code == ErrorCode.INVALID_TRANSACTION_TIMEOUT


@in_virtual_time()
async def test_an_abort_has_no_winners_and_a_batch_is_within_its_range(setup: Setup) -> None:
    row = winner("daily/0/0/0", Producer(1000, 0), {})
    for batch, winners in ((-1, []), (1 << 62, []), (0, [row])):
        request = EndTxnRequest(
            transactional_id="daily",
            commit_set=CommitSet(query_id="q", run_id="r", batch=batch, winners=winners),
        )
        answer = await setup.coordinator.sinks.end(request)
        assert answer.error_code == ErrorCode.INVALID_REQUEST


@in_virtual_time()
async def test_the_content_of_a_batch_has_a_limit(setup: Setup) -> None:
    wanted = CommitSet(query_id="q", run_id="r", content=bytes(CONTENT_BYTES_MAX + 1))
    request = EndTxnRequest(transactional_id="daily", committed=True, commit_set=wanted)
    answer = await setup.coordinator.sinks.end(request)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@in_virtual_time()
async def test_another_broker_is_not_the_coordinator(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    setup.coordinator.unload_partition(0)
    codes = {
        (await sinks.begin()).error_code,
        (await sinks.open(parent, sinks.name(0))).error_code,
        (await sinks.end(parent, 0)).error_code,
        (await sinks.remove()).error_code,
    }
    assert codes == {ErrorCode.NOT_COORDINATOR}


@in_virtual_time()
async def test_without_a_producer_id_the_request_fails_and_leaves_nothing(setup: Setup) -> None:
    setup.gives_producer_ids = False
    answer = await Sinks(setup).begin()
    assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert setup.coordinator.id_count == 0
