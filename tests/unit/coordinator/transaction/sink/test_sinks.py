"""Sinks and their children: runs, tasks, commit sets, aborts and removal."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.sink import QueryRun, requests
from lakelog.coordinator.transaction.sink import commit_sets
from lakelog.coordinator.transaction.sink import sinks as sinks_module
from lakelog.coordinator.transaction.state import EPOCH_MAX
from lakelog.protocol.commit_sets import NO_BATCH, Refusal
from lakelog.records.batch import read_header
from sink_setup import BUMPING, ORDERS, Producer, Setup, Sinks, again, reason, winner
from transaction_setup import in_virtual_time
from waiting import until

DAY_S = 24 * 3600


# Runs


@in_virtual_time()
async def test_all_tasks_of_a_run_get_the_same_identity(setup: Setup) -> None:
    sinks = Sinks(setup)
    answers = [await again(sinks.begin) for _ in range(3)]
    assert {(each.producer_id, each.producer_epoch) for each in answers} == {(1000, 0)}
    assert answers[0].sink is not None
    assert answers[0].sink.next_batch == NO_BATCH


@in_virtual_time()
async def test_a_new_run_fences_the_old_one_and_aborts_its_children(setup: Setup) -> None:
    sinks = Sinks(setup)
    old = await sinks.begun("run-1")
    won = await sinks.task(old, sinks.name(0), "old")
    new = await sinks.begun("run-2")
    assert new == Producer(old.producer_id, old.epoch + 1)
    assert await sinks.stable() == []
    assert setup.markers.partition(*ORDERS).fates == [False]
    assert reason(await sinks.ended(old, 0, [won])) is Refusal.RUN_FENCED
    assert reason(await sinks.open(old, sinks.name(0, 1))) is Refusal.RUN_FENCED


@in_virtual_time()
async def test_an_unused_child_of_an_old_run_can_neither_write_nor_win(setup: Setup) -> None:
    sinks = Sinks(setup)
    name = sinks.name(0)
    child = await sinks.opened(await sinks.begun("run-1"), name)
    new = await sinks.begun("run-2")
    assert await sinks.write(name, child, "late") is ErrorCode.PRODUCER_FENCED
    answer = await sinks.ended(new, 0, [winner(name, child, {})], "run-2")
    assert reason(answer) is Refusal.NOT_OPEN


@in_virtual_time()
async def test_a_fenced_run_never_returns(setup: Setup) -> None:
    sinks = Sinks(setup)
    await sinks.begun("run-1")
    await sinks.begun("run-2")
    assert reason(await again(lambda: sinks.begin("run-1"))) is Refusal.RUN_FENCED
    await setup.restart()
    assert reason(await again(lambda: sinks.begin("run-1"))) is Refusal.RUN_FENCED
    assert (await sinks.begun("run-2")).epoch == 1


@in_virtual_time()
async def test_another_query_is_refused_with_the_present_one(setup: Setup) -> None:
    await Sinks(setup).begun()
    answer = await Sinks(setup, query_id="other").begin("run-9")
    assert reason(answer) is Refusal.ANOTHER_QUERY
    assert answer.sink is not None
    assert answer.sink.query_id == "query"
    assert answer.refused is not None
    assert "generation" in answer.refused.message


@in_virtual_time()
async def test_the_id_of_an_ordinary_producer_is_no_sink(setup: Setup) -> None:
    await setup.ready("daily")
    assert reason(await Sinks(setup).begin()) is Refusal.NOT_A_SINK


@in_virtual_time()
async def test_an_ordinary_producer_cannot_use_a_sink_or_a_child(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    name = sinks.name(0)
    child = await sinks.opened(parent, name)
    for taken in ("daily", name):
        assert (await setup.init(taken)).code is ErrorCode.INVALID_TXN_STATE
    await sinks.write(name, child, "v")
    for taken, producer in (("daily", parent), (name, child)):
        ended = await setup.end(producer, commit=True, transactional_id=taken, version=BUMPING)
        assert ended.code is ErrorCode.INVALID_TXN_STATE, taken
    added = await setup.add(parent, transactional_id="daily", version=BUMPING)
    assert added is ErrorCode.INVALID_TXN_STATE


@pytest.mark.parametrize(("query", "run"), [("", "r"), ("q", ""), ("q" * 257, "r")])
def test_the_ids_of_query_and_run_have_a_length_limit(query: str, run: str) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        answer = await Sinks(setup, query_id=query).begin(run)
        assert answer.error_code == ErrorCode.INVALID_REQUEST

    scenario()


# Children


@in_virtual_time()
async def test_a_task_of_a_committed_batch_learns_so(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(4), "v")
    assert reason(await sinks.ended(parent, 4, [won])) is None
    assert reason(await sinks.open(parent, sinks.name(4, 0, 1))) is Refusal.BATCH_COMMITTED
    assert reason(await sinks.open(parent, sinks.name(6))) is Refusal.BATCH_AHEAD
    assert reason(await sinks.open(parent, sinks.name(5))) is None


@pytest.mark.parametrize("name", ["daily", "daily/1/2", "daily/1/2/x", "daily/1/2/3/4"])
def test_other_names_are_no_tasks(name: str) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        sinks = Sinks(setup)
        parent = await sinks.begun()
        assert reason(await sinks.open(parent, name)) is Refusal.NOT_A_SINK

    scenario()


@in_virtual_time()
async def test_a_task_of_an_unknown_sink_is_refused(setup: Setup) -> None:
    answer = await Sinks(setup).open(Producer(1000, 0), "daily/0/0/0")
    assert reason(answer) is Refusal.NOT_A_SINK


@in_virtual_time()
async def test_the_same_attempt_again_fences_and_aborts_the_first(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    name = sinks.name(0)
    first = await sinks.opened(parent, name)
    await sinks.write(name, first, "first")
    second = await sinks.opened(parent, name)
    assert second.producer_id == first.producer_id
    assert second.epoch > first.epoch
    assert await sinks.write(name, first, "late") is not ErrorCode.NONE
    await sinks.write(name, second, "second")
    assert reason(await sinks.ended(parent, 0, [winner(name, second, {ORDERS: 1})])) is None
    assert await sinks.stable() == ["second"]


@in_virtual_time()
async def test_a_later_batch_reuses_producer_ids_and_names(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    used = set()
    for batch in range(20):
        rows = []
        for partition in range(3):
            name = sinks.name(batch, partition)
            child = await sinks.opened(parent, name)
            assert child not in used, "an identity belongs to one task"
            used.add(child)
            await sinks.write(name, child, f"{batch}.{partition}")
            rows.append(winner(name, child, {ORDERS: 1}))
        assert reason(await sinks.ended(parent, batch, rows)) is None
        await sinks.stable()
        await asyncio.sleep(1)
    assert len({child.producer_id for child in used}) == 3
    assert setup.coordinator.id_count == 1 + 3


@in_virtual_time()
async def test_producer_ids_whose_epochs_may_be_forgotten_are_not_reused(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    assert reason(await sinks.ended(parent, 0, [won])) is None
    await sinks.stable()
    await asyncio.sleep(1)
    setup.lose_power()
    await setup.restart()
    parent = await sinks.begun("run-2")
    child = await sinks.opened(parent, sinks.name(1))
    assert child.producer_id > max(won.producer_id, 1000)


@in_virtual_time()
async def test_the_number_of_children_has_a_limit(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sinks_module, "CHILDREN_MAX", 3)
        for partition in range(3):
            await sinks.opened(parent, sinks.name(0, partition))
        assert reason(await sinks.open(parent, sinks.name(0, 3))) is Refusal.TOO_LARGE
        assert reason(await again(lambda: sinks.open(parent, sinks.name(0, 2)))) is None


@in_virtual_time()
async def test_a_child_without_epochs_left_makes_room_for_the_next(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    assert reason(await sinks.ended(parent, 0, [won])) is None
    await sinks.stable()
    await asyncio.sleep(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(commit_sets, "EPOCHS_LEFT_MIN", EPOCH_MAX)
        child = await sinks.opened(parent, sinks.name(1))
    assert child.producer_id != won.producer_id
    assert setup.coordinator.id_count == 2, "the sink and the new child"


# Commits


@in_virtual_time()
async def test_a_commit_makes_the_winners_visible_and_nothing_else(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    rows = [
        await sinks.task(parent, sinks.name(0, 0, 1), "a", "b"),
        await sinks.task(parent, sinks.name(0, 1), "c", partition=("clicks", 1)),
    ]
    await sinks.task(parent, sinks.name(0, 0, 0), "loser")
    answer = await sinks.ended(parent, 0, rows)
    assert reason(answer) is None
    assert answer.sink is not None
    assert answer.sink.next_batch == sinks.next_batch == 1
    assert await sinks.stable() == ["c", "a", "b"]
    assert None not in setup.markers.partition(*ORDERS).fates


@in_virtual_time()
async def test_a_commit_is_one_record_batch(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    rows = [await sinks.task(parent, sinks.name(0, each), "v") for each in range(3)]
    await sinks.task(parent, sinks.name(0, 9), "loser")
    setup.markers.fate = lambda: "lost"
    before = len(setup.log.batches[0])
    assert reason(await sinks.ended(parent, 0, rows)) is None
    (batch,) = setup.log.batches[0][before:]
    assert read_header(batch).records_count == 5, "the sink, three winners and the loser"


@in_virtual_time()
async def test_the_sink_keeps_the_content_of_the_last_commit(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    request = requests.end_batch(
        QueryRun("daily", "query", "run-1", *parent), 0, [], commit=True, content=b"no rows"
    )
    answer = await again(lambda: setup.coordinator.sinks.end(request))
    await setup.restart()
    await sinks.begun("run-2")
    found = setup.coordinator.admin.describe("daily").sink
    assert answer.sink is not None
    assert found is not None
    assert bytes(answer.sink.content) == bytes(found.content) == b"no rows"


@in_virtual_time()
async def test_a_repeated_commit_succeeds_and_another_set_does_not(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    for _ in range(2):
        assert reason(await sinks.ended(parent, 0, [won])) is None
    await setup.restart()
    assert reason(await sinks.ended(parent, 0, [won])) is None
    assert reason(await sinks.ended(parent, 0, [])) is Refusal.BATCH_COMMITTED
    assert sinks.next_batch == 1
    assert await sinks.stable() == ["v"]


@in_virtual_time()
async def test_a_batch_behind_or_ahead_is_refused(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    assert reason(await sinks.ended(parent, 7)) is None, "the first may have any number"
    assert reason(await sinks.ended(parent, 8)) is None, "a batch may have no records"
    assert reason(await sinks.ended(parent, 7)) is Refusal.BATCH_COMMITTED
    assert reason(await sinks.ended(parent, 10)) is Refusal.BATCH_AHEAD
    assert (await sinks.end(parent, -1)).error_code == ErrorCode.INVALID_REQUEST


@in_virtual_time()
async def test_a_commit_of_another_query_or_run_is_refused(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    other = await Sinks(setup, query_id="other").end(parent, 0)
    assert reason(other) is Refusal.ANOTHER_QUERY
    assert reason(await sinks.end(parent, 0, run_id="run-0")) is Refusal.RUN_FENCED
    assert reason(await Sinks(setup, "unknown").end(parent, 0)) is Refusal.NOT_A_SINK


@in_virtual_time()
async def test_a_winner_must_be_open_with_the_content_of_its_receipt(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    name = sinks.name(0)
    child = await sinks.opened(parent, name)
    await sinks.write(name, child, "v")
    wrong = {
        Refusal.NOT_OPEN: [
            winner(name, Producer(child.producer_id, child.epoch + 1), {ORDERS: 1}),
            winner(sinks.name(0, 5), child, {ORDERS: 1}),
        ],
        Refusal.CONTENT_DIFFERS: [
            winner(name, child, {}),
            winner(name, child, {ORDERS: 0}),
            winner(name, child, {ORDERS: 1, ("orders", 1): 1}),
            winner(name, child, {("orders", 1): 1}),
            winner(sinks.name(1), child, {ORDERS: 1}),
            winner("other/0/0/0", child, {ORDERS: 1}),
        ],
    }
    for expected, rows in wrong.items():
        for row in rows:
            assert reason(await sinks.ended(parent, 0, [row])) is expected, row
    right = winner(name, child, {ORDERS: 1})
    assert reason(await sinks.ended(parent, 0, [right, right])) is Refusal.CONTENT_DIFFERS
    assert reason(await sinks.ended(parent, 0, [right])) is None
    assert await sinks.stable() == ["v"]


@in_virtual_time()
async def test_a_batch_whose_records_a_log_has_lost_is_not_committed(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "kept", "lost")
    log = setup.markers.partition(*ORDERS)
    log.records.pop(), log.fates.pop()
    answer = await sinks.ended(parent, 0, [won])
    assert reason(answer) is Refusal.RECORDS_LOST
    assert answer.sink is not None
    assert answer.sink.next_batch == NO_BATCH
    again = await sinks.task(await sinks.begun("run-2"), sinks.name(0, 0, 1), "kept", "lost")
    parent = await sinks.begun("run-2")
    assert reason(await sinks.ended(parent, 0, [again], "run-2")) is None
    assert await sinks.stable() == ["kept", "lost"]


@in_virtual_time()
async def test_a_commit_waits_for_the_leaders_of_its_partitions(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    setup.producer_logs.fails = True
    answer = await sinks.end(parent, 0, [won])
    assert ErrorCode(answer.error_code).retriable
    setup.producer_logs.fails = False
    assert reason(await sinks.ended(parent, 0, [won])) is None
    assert await sinks.stable() == ["v"]


@in_virtual_time()
async def test_a_run_that_ends_during_the_look_at_the_logs_commits_nothing(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    setup.producer_logs.delay_s = 1.0
    commit = asyncio.ensure_future(sinks.end(parent, 0, [won]))
    await asyncio.sleep(0.5)
    await sinks.begun("run-2")
    assert reason(await commit) is Refusal.RUN_FENCED
    assert await sinks.stable() == []


@in_virtual_time()
async def test_a_batch_longer_than_the_timeout_names_it(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    name = sinks.name(0)
    child = await sinks.opened(parent, name, timeout_ms=5_000)
    await sinks.write(name, child, "late")
    await asyncio.sleep(6)
    answer = await sinks.ended(parent, 0, [winner(name, child, {ORDERS: 1})])
    assert reason(answer) is Refusal.NOT_OPEN
    assert answer.refused is not None
    assert "exceeded its timeout of 5000 ms" in answer.refused.message
    assert sinks.next_batch == NO_BATCH
    assert await sinks.stable() == []


@in_virtual_time()
async def test_a_task_without_records_may_win(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0))
    assert reason(await sinks.ended(parent, 0, [won])) is None
    late = Producer(won.producer_id, won.producer_epoch)
    assert await sinks.write(sinks.name(0), late, "late") is ErrorCode.PRODUCER_FENCED


@in_virtual_time()
async def test_a_loser_that_is_just_adding_a_partition_is_aborted_after_the_commit(
    setup: Setup,
) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    loser = sinks.name(0, 0, 1)
    child = await sinks.opened(parent, loser)
    await sinks.write(loser, child, "lost")
    adding = setup.coordinator.verify(loser, *child, [("orders", 1)], add=True)
    ending = sinks.end(parent, 0, [won])
    assert reason(await ending) is None
    await adding
    await asyncio.sleep(1)
    assert setup.state(loser) == "CompleteAbort", "long before its timeout"
    assert await sinks.stable() == ["v"]
    assert await sinks.write(loser, child, "late", ("orders", 2)) is not ErrorCode.NONE


@in_virtual_time()
async def test_a_loser_that_begins_during_the_commit_does_not_stay_open(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    loser = sinks.name(0, 0, 1)
    child = await sinks.opened(parent, loser)
    ending = sinks.end(parent, 0, [won])
    task = asyncio.ensure_future(ending)
    (shard,) = setup.coordinator._host.active_shards()
    await until(lambda: not shard.ids.is_complete("daily"), every_s=0)
    adding = setup.coordinator.verify(loser, *child, [ORDERS], add=True)
    assert reason(await task) is None
    assert (await adding)[ORDERS] is ErrorCode.CONCURRENT_TRANSACTIONS
    assert await sinks.write(loser, child, "late") is ErrorCode.PRODUCER_FENCED
    await asyncio.sleep(1)
    assert setup.state(loser) == "Empty"


@in_virtual_time()
async def test_a_set_counts_the_bytes_of_its_records(setup: Setup) -> None:
    """As with the 200 tasks that Spark has by default, each of which writes to all partitions."""
    sinks = Sinks(setup)
    parent = await sinks.begun()
    partitions = [("orders", index) for index in range(200)]
    rows = []
    for each in range(40):
        child = await sinks.opened(parent, sinks.name(0, each))
        await setup.coordinator.verify(sinks.name(0, each), *child, partitions, add=True)
        for partition in partitions:
            setup.markers.partition(*partition).append(child, "v")
        rows.append(winner(sinks.name(0, each), child, dict.fromkeys(partitions, 1)))
    assert reason(await sinks.ended(parent, 0, rows)) is None


@in_virtual_time(batch_bytes_max=550)
async def test_a_set_has_a_limit_in_bytes(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    rows = [await sinks.task(parent, sinks.name(0, each), "v") for each in range(4)]
    answer = await sinks.ended(parent, 0, rows)
    assert reason(answer) is Refusal.TOO_LARGE
    assert answer.refused is not None
    assert "550" in answer.refused.message
    assert reason(await sinks.ended(parent, 0, rows[:2])) is None
    assert await sinks.stable() == ["v", "v"], "losers beyond the limit are aborted too"


# Failures


@pytest.mark.parametrize("failures", [["refused"], ["lost"], ["kept"], ["lost", "kept", "refused"]])
def test_a_commit_whose_append_fails_is_repeated_until_it_is_there_once(
    failures: list[str],
) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        sinks = Sinks(setup)
        parent = await sinks.begun()
        rows = [await sinks.task(parent, sinks.name(0, each), f"v{each}") for each in range(3)]
        await sinks.task(parent, sinks.name(0, 0, 1), "loser")
        fates = itertools.chain(failures, itertools.repeat("ok"))
        setup.log.fate = lambda: next(fates)
        assert reason(await sinks.ended(parent, 0, rows)) is None
        assert await sinks.stable() == ["v0", "v1", "v2"]
        assert sinks.next_batch == 1

    scenario()


@in_virtual_time()
async def test_a_commit_is_completed_by_the_next_coordinator(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    rows = [await sinks.task(parent, sinks.name(0, each), f"v{each}") for each in range(3)]
    await sinks.task(parent, sinks.name(0, 0, 1), "loser")
    setup.markers.fate = lambda: "lost"
    assert reason(await sinks.ended(parent, 0, rows)) is None
    await asyncio.sleep(1)
    setup.markers.fate = lambda: "ok"
    await setup.restart()
    assert await sinks.stable() == ["v0", "v1", "v2"]


@in_virtual_time()
async def test_a_stale_child_is_aborted_when_the_shard_is_loaded(setup: Setup) -> None:
    """The former coordinator died after the commit, and before the abort of an unsettled loser."""
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    loser = sinks.name(0, 0, 1)
    child = await sinks.opened(parent, loser)
    await sinks.write(loser, child, "lost")
    adding = setup.coordinator.verify(loser, *child, [("orders", 1)], add=True)
    assert reason(await sinks.end(parent, 0, [won])) is None
    await adding
    assert setup.state(loser) == "Ongoing"
    await setup.restart()
    await asyncio.sleep(1)
    assert setup.state(loser) == "CompleteAbort", "long before its timeout"
    assert await sinks.stable() == ["v"]


# Aborts and removal


@in_virtual_time()
async def test_an_abort_ends_the_children_of_an_uncommitted_batch(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    rows = [await sinks.task(parent, sinks.name(0, each), "v") for each in range(2)]
    assert reason(await again(lambda: sinks.end(parent, 0, commit=False))) is None
    assert await sinks.stable() == []
    assert reason(await sinks.ended(parent, 0, rows)) is Refusal.NOT_OPEN
    won = await sinks.task(parent, sinks.name(0, 0, 1), "again")
    assert reason(await sinks.ended(parent, 0, [won])) is None
    assert reason(await sinks.end(parent, 0, commit=False)) is Refusal.BATCH_COMMITTED
    assert await sinks.stable() == ["again"]


@in_virtual_time()
async def test_a_task_may_abort_itself(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    name = sinks.name(0)
    child = await sinks.opened(parent, name)
    await sinks.write(name, child, "v")
    ended = await setup.end(child, commit=False, transactional_id=name, version=BUMPING)
    assert ended.code is ErrorCode.NONE
    assert await sinks.stable() == []


@in_virtual_time()
async def test_a_removed_sink_is_forgotten_with_its_children(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    won = await sinks.task(parent, sinks.name(0), "v")
    assert reason(await sinks.ended(parent, 0, [won])) is None
    late = await sinks.task(parent, sinks.name(1), "open")
    assert reason(await again(sinks.remove)) is None
    assert await sinks.stable() == ["v"]
    assert setup.coordinator.id_count == 0
    assert reason(await sinks.ended(parent, 1, [late])) is Refusal.NOT_A_SINK
    assert reason(await sinks.remove()) is Refusal.NOT_A_SINK
    other = Sinks(setup, query_id="other")
    assert (await again(lambda: other.begin("run-1"))).error_code == 0


@in_virtual_time(batch_bytes_max=300)
async def test_a_sink_with_many_children_is_forgotten_in_several_batches(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    for each in range(20):
        await sinks.opened(parent, sinks.name(0, each))
    before = len(setup.log.batches[0])
    assert reason(await again(sinks.remove)) is None
    assert setup.coordinator.id_count == 0
    assert max(map(len, setup.log.batches[0][before:])) <= 300
    assert reason(await sinks.remove()) is Refusal.NOT_A_SINK


@in_virtual_time()
async def test_a_sink_never_expires_unless_it_may(setup: Setup) -> None:
    lasting, passing = Sinks(setup, "lasting"), Sinks(setup, "passing")
    parent = await lasting.begun()
    assert reason(await lasting.ended(parent, 3)) is None
    assert (await passing.begin(expires=True)).error_code == 0
    child = await lasting.task(parent, lasting.name(4))
    await asyncio.sleep(9 * DAY_S)
    assert lasting.next_batch == 4
    assert setup.coordinator.admin.describe("passing").error_code
    assert setup.coordinator.admin.describe(child.transactional_id).error_code
    assert reason(await again(lambda: lasting.begin("run-2"))) is None
    assert setup.coordinator.id_count == 1


@in_virtual_time()
async def test_the_children_of_a_batch_job_are_forgotten_before_the_job(setup: Setup) -> None:
    lasting, passing = Sinks(setup, "lasting"), Sinks(setup, "passing")
    for sinks in (lasting, passing):
        answer = await sinks.begin(expires=sinks is passing)
        parent = Producer(answer.producer_id, answer.producer_epoch)
        won = await sinks.task(parent, sinks.name(0), "v")
        assert reason(await sinks.ended(parent, 0, [won])) is None
    await asyncio.sleep(3 * 3600)
    assert setup.coordinator.id_count == 3, "two sinks, and the child that waits for its reuse"
    assert passing.next_batch == 1


@in_virtual_time()
async def test_a_sink_is_described_with_its_open_children(setup: Setup) -> None:
    sinks = Sinks(setup)
    parent = await sinks.begun()
    await sinks.task(parent, sinks.name(0, 0), "v")
    await sinks.task(parent, sinks.name(0, 1))
    found = setup.coordinator.admin.describe("daily")
    assert found.sink is not None
    assert (found.sink.query_id, found.sink.run_id) == ("query", "run-1")
    (child,) = found.children
    assert (child.transactional_id, child.state, child.partitions) == ("daily/0/0/0", "Ongoing", 1)
