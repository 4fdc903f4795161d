"""The steps of sinks and children as plain functions; `test_sinks` has the requests."""

from __future__ import annotations

from dataclasses import replace

import pytest

from lakelog.coordinator.keys import child_id
from lakelog.coordinator.transaction.requests import NO_SEQUENCE, WrittenTo
from lakelog.coordinator.transaction.sink.commit_sets import (
    FORMER_RUNS_MAX,
    RefusedError,
    batch_committed,
    check_records,
    digest_of,
    is_stale,
    may_reuse,
    needs_parent_id,
    run_begun,
    winner_committed,
    written_to,
)
from lakelog.coordinator.transaction.state import (
    EPOCH_LAST,
    EPOCH_MAX,
    Child,
    Sink,
    Transaction,
    TransactionState,
)
from lakelog.coordinator.transaction.transitions import Known
from lakelog.protocol.commit_sets import CommitSet, Refusal, SinkRun, Winner
from sink_setup import ORDERS, Producer, winner

S = TransactionState
SINK = Transaction(
    producer_id=7,
    producer_epoch=3,
    timeout_ms=60_000,
    last_update_ms=5,
    part=Sink(query_id="q", run_id="r", next_batch=4),
)
CHILD = Transaction(
    producer_id=9,
    producer_epoch=1,
    timeout_ms=60_000,
    last_update_ms=5,
    start_ms=5,
    state=S.ONGOING,
    partitions=frozenset({ORDERS}),
    part=Child(7, 3),
)


def known(current: Transaction | None, *, may_be_old: bool = False) -> Known:
    return Known(current, is_complete=True, may_be_old=may_be_old)


def run(name: str) -> SinkRun:
    return SinkRun(query_id="q", run_id=name, batch=4)


def test_a_run_that_continues_is_the_present_state_and_needs_no_id() -> None:
    assert run_begun(known(SINK), run("r"), 1, 9, -1) is SINK
    assert not needs_parent_id(known(SINK, may_be_old=True), run("r"))


@pytest.mark.parametrize(
    ("sink", "may_be_old"),
    [(SINK, True), (replace(SINK, producer_epoch=EPOCH_LAST), False)],
)
def test_a_new_run_has_a_new_producer_id_without_a_certain_next_epoch(
    sink: Transaction, *, may_be_old: bool
) -> None:
    found = known(sink, may_be_old=may_be_old)
    assert needs_parent_id(found, run("r2"))
    step = run_begun(found, run("r2"), 1, 9, 70)
    assert (step.producer_id, step.producer_epoch) == (70, 0)


def test_all_runs_that_were_fenced_without_a_commit_are_remembered() -> None:
    sink = SINK
    for number in range(200):
        sink = run_begun(known(sink), run(f"run-{number}"), 1, 9, -1)
    for number in range(199):
        with pytest.raises(RefusedError, match="was fenced by run run-199"):
            run_begun(known(sink), run(f"run-{number}"), 1, 9, -1)


def test_no_run_begins_when_fenced_ones_could_not_be_remembered() -> None:
    part = Sink(query_id="q", run_id="r", next_batch=4, former_runs=bytes(8 * FORMER_RUNS_MAX))
    full = replace(SINK, part=part)
    assert run_begun(known(full), run("r"), 1, 9, -1) is full
    with pytest.raises(RefusedError, match=r"8192 runs .* none has committed batch 4") as raised:
        run_begun(known(full), run("new"), 1, 9, -1)
    assert raised.value.refused.reason == Refusal.TOO_MANY_RUNS


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (2, Refusal.BATCH_COMMITTED),
        (3, None),
        (4, None),
        (5, Refusal.BATCH_AHEAD),
    ],
)
def test_a_new_run_begins_at_the_next_batch_or_repeats_the_last(
    batch: int, reason: Refusal | None
) -> None:
    new = SinkRun(query_id="q", run_id="new", batch=batch)
    if reason is None:
        assert run_begun(known(SINK), new, 1, 9, -1).producer_epoch == SINK.producer_epoch + 1
        return
    with pytest.raises(
        RefusedError, match=rf"batch {batch} is .* next batch of the sink is 4"
    ) as no:
        run_begun(known(SINK), new, 1, 9, -1)
    assert no.value.refused.reason == reason


def test_a_run_that_was_fenced_at_any_time_never_returns() -> None:
    """Whichever batch it was at: the next one or the last committed, also after many commits."""
    for own in (3, 4):
        sink = run_begun(known(SINK), SinkRun(query_id="q", run_id="old", batch=own), 1, 9, -1)
        sink = run_begun(known(sink), run("new"), 1, 9, -1)
        for batch in range(4, 12):
            for again in (own, own + 1):
                old = SinkRun(query_id="q", run_id="old", batch=again)
                # It has committed its own batch only if that was committed when it began.
                if again <= 4:
                    with pytest.raises(RefusedError):
                        run_begun(known(sink), old, 1, 9, -1)
            wanted = CommitSet(query_id="q", run_id="new", batch=batch)
            after = batch_committed(sink, wanted, 9)
            assert after is not None
            sink = after


@pytest.mark.parametrize(
    ("parent", "batch", "stale"),
    [
        (SINK, 4, False),
        (SINK, 3, True),
        (replace(SINK, producer_epoch=4), 4, True),
        (replace(SINK, producer_id=8), 4, True),
        (replace(SINK, part=None), 4, True),
        (None, 4, True),
    ],
)
def test_a_child_is_stale_after_its_run_and_after_its_batch(
    parent: Transaction | None, batch: int, *, stale: bool
) -> None:
    assert is_stale(parent, Child(7, 3), batch) is stale


@pytest.mark.parametrize(
    ("former", "expected"),
    [
        (known(replace(CHILD, state=S.COMPLETE_COMMIT)), True),
        (known(replace(CHILD, state=S.EMPTY)), True),
        (known(CHILD), False),
        (known(replace(CHILD, state=S.PREPARE_ABORT)), False),
        (known(replace(CHILD, state=S.COMPLETE_ABORT), may_be_old=True), False),
        (known(replace(CHILD, state=S.COMPLETE_ABORT))._replace(is_complete=False), False),
        (known(replace(CHILD, state=S.COMPLETE_ABORT, producer_epoch=EPOCH_LAST - 2)), False),
        (known(None), False),
    ],
)
def test_only_finished_children_with_epochs_left_are_reused(
    former: Known, *, expected: bool
) -> None:
    assert may_reuse(former) is expected


def commit(current: Transaction, row: Winner) -> Transaction | None:
    name = row.transactional_id
    parent = Producer(7, 3)
    return winner_committed(known(current), child_id(name), row, "daily", parent, 4, 9)


def test_a_winner_is_prepared_at_the_next_epoch() -> None:
    step = commit(CHILD, winner("daily/4/0/0", Producer(9, 1), {ORDERS: 1}))
    assert step is not None
    assert (step.state, step.producer_epoch, step.last_epoch) == (S.PREPARE_COMMIT, 2, 1)
    assert step.part == CHILD.part


def test_a_winner_at_the_last_epoch_ends_at_the_highest() -> None:
    last = replace(CHILD, producer_epoch=EPOCH_LAST)
    step = commit(last, winner("daily/4/0/0", Producer(9, EPOCH_LAST), {ORDERS: 1}))
    assert step is not None
    assert step.producer_epoch == EPOCH_MAX


def test_an_abort_before_the_timeout_is_not_called_a_timeout() -> None:
    aborted = replace(CHILD, state=S.COMPLETE_ABORT, producer_epoch=3, last_update_ms=6)
    with pytest.raises(RefusedError, match="was aborted or never began") as raised:
        commit(aborted, winner("daily/4/0/0", Producer(9, 1), {ORDERS: 1}))
    assert raised.value.refused.reason == Refusal.NOT_OPEN
    late = replace(aborted, last_update_ms=60_005)
    with pytest.raises(RefusedError, match="exceeded its timeout of 60000 ms"):
        commit(late, winner("daily/4/0/0", Producer(9, 1), {ORDERS: 1}))


def test_a_digest_ignores_the_order_of_winners_and_nothing_else() -> None:
    def digest(batch: int, *rows: Winner) -> bytes:
        return digest_of(CommitSet(query_id="q", run_id="r", batch=batch, winners=[*rows]))

    first = winner("daily/4/0/0", Producer(9, 1), {ORDERS: 1, ("orders", 1): 2})
    second = winner("daily/4/1/0", Producer(8, 1), {ORDERS: 1})
    base = digest(4, first, second)
    assert digest(4, second, first) == base
    others = [
        digest(5, first, second),
        digest(4, first),
        digest(4, first, winner("daily/4/1/0", Producer(8, 2), {ORDERS: 1})),
        digest(4, first, winner("daily/4/1/0", Producer(8, 1), {ORDERS: 2})),
        digest(4, first, winner("daily/4/1/1", Producer(8, 1), {ORDERS: 1})),
    ]
    assert base not in others
    assert len(set(others)) == len(others)


CLICKS = ("clicks", 1)
ONE, TWO = WrittenTo(*ORDERS, 9, 1), WrittenTo(*CLICKS, 9, 1)


def wanted(records: int) -> CommitSet:
    won = winner("daily/4/0/0", Producer(9, 1), {ORDERS: records, CLICKS: 1})
    return CommitSet(query_id="q", run_id="r", batch=4, winners=[won])


def test_the_partitions_of_all_receipts_are_looked_up() -> None:
    assert sorted(written_to(wanted(3))) == [TWO, ONE]
    assert written_to(CommitSet(query_id="q", run_id="r", batch=4)) == []


@pytest.mark.parametrize("records", [3, 1 << 31, (1 << 31) + 3])
def test_the_last_sequence_is_that_of_the_last_record(records: int) -> None:
    check_records(wanted(records), {ONE: (records - 1) % (1 << 31), TWO: 0})


@pytest.mark.parametrize("last", [NO_SEQUENCE, 0, 1, 3])
def test_a_log_with_other_records_is_named(last: int) -> None:
    text = rf"orders-0 has {last + 1} of the 3 records of the task daily/4/0/0"
    with pytest.raises(RefusedError, match=text) as raised:
        check_records(wanted(3), {ONE: last, TWO: 0})
    assert raised.value.refused.reason == Refusal.RECORDS_LOST
