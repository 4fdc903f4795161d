"""EndTxn in every state, by clients with and without KIP-890, and its repetition."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.coordinator import host
from lakelog.coordinator.transaction import producers
from lakelog.coordinator.transaction.state import TransactionVersion
from transaction_setup import BUMPING, CLASSIC, Producer, Setup, in_virtual_time, run
from waiting import until

NONE = ErrorCode.NONE


STATE = ErrorCode.INVALID_TXN_STATE


FENCED = ErrorCode.PRODUCER_FENCED


CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS


MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING


def before(producer: Producer) -> Producer:
    return Producer(producer.producer_id, producer.epoch - 1)


async def in_state(setup: Setup, state: str, version: TransactionVersion) -> Producer:
    """Bring the transactional id into a state; return the producer that may continue."""
    producer = await setup.ready()
    if state == "Empty":
        return await setup.ready()
    await setup.add(producer, version=version)
    if state == "Ongoing":
        return producer
    if state.startswith("Prepare"):
        setup.markers.delay_s = lambda: 1000.0
    answer = await setup.end(producer, commit=state.endswith("Commit"), version=version)
    assert answer.code == NONE
    if state.startswith("Complete"):
        await setup.settled()
    return Producer(answer.producer_id, answer.producer_epoch)


@pytest.mark.parametrize(
    ("state", "commit", "expected"),
    [
        ("Empty", True, STATE),
        ("Empty", False, STATE),
        ("Ongoing", True, NONE),
        ("Ongoing", False, NONE),
        ("PrepareCommit", True, CONCURRENT),
        ("PrepareCommit", False, STATE),
        ("PrepareAbort", True, STATE),
        ("PrepareAbort", False, CONCURRENT),
        ("CompleteCommit", True, NONE),
        ("CompleteCommit", False, STATE),
        ("CompleteAbort", True, STATE),
        ("CompleteAbort", False, NONE),
    ],
)
def test_an_older_client(state: str, commit: bool, expected: ErrorCode) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        producer = await in_state(setup, state, CLASSIC)
        assert setup.state() == state
        assert (await setup.end(producer, commit=commit)).code == expected
        if producer.epoch:
            assert (await setup.end(before(producer), commit=commit)).code == FENCED

    scenario()


@pytest.mark.parametrize(
    ("state", "commit", "again", "retried"),
    [
        ("Empty", True, FENCED, STATE),
        ("Empty", False, FENCED, NONE),
        ("Ongoing", True, FENCED, NONE),
        ("Ongoing", False, FENCED, NONE),
        ("PrepareCommit", True, CONCURRENT, CONCURRENT),
        ("PrepareCommit", False, STATE, CONCURRENT),
        ("PrepareAbort", True, STATE, CONCURRENT),
        ("PrepareAbort", False, CONCURRENT, CONCURRENT),
        ("CompleteCommit", True, NONE, STATE),
        ("CompleteCommit", False, STATE, NONE),
        ("CompleteAbort", True, STATE, STATE),
        ("CompleteAbort", False, NONE, NONE),
    ],
)
def test_a_client_of_kip_890(
    state: str, commit: bool, again: ErrorCode, retried: ErrorCode
) -> None:
    """`again`: with the epoch before the bump; `retried`: with the epoch of the response."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        producer = await in_state(setup, state, BUMPING)
        assert setup.state() == state
        repeated = await setup.end(before(producer), commit=commit, version=BUMPING)
        assert repeated.code == again
        if again is NONE:
            assert Producer(*repeated[1:]) == producer, "the identity of the first answer"
        answer = await setup.end(producer, commit=commit, version=BUMPING)
        assert answer.code == retried
        if retried is NONE:
            assert Producer(*answer[1:]) == Producer(producer.producer_id, producer.epoch + 1)

    scenario()


@pytest.mark.parametrize("commit", [True, False])
def test_the_next_empty_transaction_ends_after_the_markers_of_the_previous_one(
    commit: bool,
) -> None:
    """The network delays a marker; the client repeats EndTxn and keeps its producer."""

    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        first = await setup.ready()
        await setup.add(first, version=BUMPING)
        setup.markers.delay_s = lambda: 2.0
        ended = await setup.end(first, commit=commit, version=BUMPING)
        following = Producer(ended.producer_id, ended.producer_epoch)
        codes = []
        while True:
            answer = await setup.end(following, commit=False, version=BUMPING)
            codes.append(answer.code)
            if not answer.code.retriable:
                break
            await asyncio.sleep(0.05)
        assert set(codes) == {CONCURRENT, NONE}
        assert Producer(*answer[1:]) == Producer(first.producer_id, first.epoch + 2)

    scenario()


@in_virtual_time()
async def test_kip_890_the_epoch_rises_with_every_transaction(setup: Setup) -> None:
    producer = await setup.ready()
    for step in range(1, 4):
        await setup.add(producer, version=BUMPING)
        answer = await setup.end(producer, commit=True, version=BUMPING)
        assert answer == (NONE, producer.producer_id, step)
        await setup.settled()
        late = producer
        producer = Producer(answer.producer_id, answer.producer_epoch)
        assert await setup.add(late, version=BUMPING) == FENCED
    assert [marker.producer_epoch for marker in setup.markers.written] == [1, 2, 3]


@in_virtual_time()
async def test_a_retry_after_a_restart_has_the_same_outcome(setup: Setup) -> None:
    """KIP-890 part 2: EndTxn of the epoch before the bump."""
    producer = await setup.ready()
    await setup.add(producer, version=BUMPING)
    first = await setup.end(producer, commit=True, version=BUMPING)
    await setup.settled()
    await setup.restart()
    assert await setup.end(producer, commit=True, version=BUMPING) == first
    assert (await setup.end(producer, commit=False, version=BUMPING)).code == STATE


@in_virtual_time()
async def test_what_only_the_end_knows_comes_back_as_it_was(setup: Setup) -> None:
    """A producer that missed the response sends InitProducerId instead (KIP-360)."""
    producer = await setup.ready()
    await setup.add(producer, version=BUMPING)
    await setup.end(producer, commit=True, version=BUMPING)
    await setup.settled()
    await setup.restart()
    assert await setup.ready(expected=producer) == Producer(producer.producer_id, 1)


@in_virtual_time()
async def test_an_end_that_is_not_committed_is_an_error_and_no_end(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer)
    setup.log.fate = lambda: "refused"
    answer = await setup.end(producer, commit=True)
    assert answer.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert setup.state() == "Ongoing"
    setup.log.fate = lambda: "ok"
    assert (await setup.end(producer, commit=True)).code == NONE


@in_virtual_time()
async def test_one_step_at_a_time(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer)
    setup.log.delay_s = lambda: 1.0
    ending = asyncio.ensure_future(setup.end(producer, commit=True))
    await asyncio.sleep(0.1)
    assert (await setup.end(producer, commit=True)).code == CONCURRENT
    assert await setup.add(producer, ("orders", 5)) == CONCURRENT
    assert (await setup.init()).code == CONCURRENT
    assert (await ending).code == NONE


@in_virtual_time()
async def test_a_producer_that_does_not_hold_the_id_is_rejected(setup: Setup) -> None:
    producer = await setup.ready()
    await setup.add(producer)
    stranger = Producer(4711, 0)
    for version in (CLASSIC, BUMPING):
        assert (await setup.end(stranger, commit=True, version=version)).code == MAPPING
        newer = Producer(producer.producer_id, producer.epoch + 1)
        assert (await setup.end(newer, commit=True, version=version)).code == FENCED
    unknown = await setup.end(producer, commit=True, transactional_id="other")
    assert unknown.code == MAPPING
    nameless = await setup.end(producer, commit=True, transactional_id="")
    assert nameless.code == ErrorCode.INVALID_REQUEST


def test_an_end_is_decided_once_and_its_partition_is_computed_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This includes the completion: the shard knows its own partition."""
    seen: list[str] = []

    def note(module: ModuleType, name: str) -> None:
        original = getattr(module, name)

        def noted(*arguments: Any, **named: Any) -> Any:
            seen.append(name)
            return original(*arguments, **named)

        monkeypatch.setattr(module, name, noted)

    async def scenario(setup: Setup) -> None:
        producer = await setup.ready()
        await setup.add(producer, version=BUMPING)
        note(host, "partition_for")
        note(producers, "ended")
        assert (await setup.end(producer, commit=True, version=BUMPING)).code == NONE
        await until(lambda: not setup.coordinator._markers._running)
        assert seen == ["partition_for", "ended"]
        assert setup.state() == "CompleteCommit"

    run(scenario)
