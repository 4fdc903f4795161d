from __future__ import annotations

import pickle

import pytest

from lakelog.client.sink import QueryRun, Receipt, RecordCount, requests

RUN = QueryRun("daily", "query", "run", 7, 3, next_batch=5)


def test_a_run_begins_under_the_sink_id() -> None:
    request = requests.begin_run("daily", "query", "run", 5, expires=True)
    assert request.transactional_id == "daily"
    assert request.parent is None
    assert request.run is not None
    assert (request.run.query_id, request.run.run_id) == ("query", "run")
    assert (request.run.batch, request.run.expires) == (5, True)


def test_a_child_names_the_identity_of_its_run() -> None:
    request = requests.open_child(RUN, "daily/5/0/1", 2000)
    assert (request.transactional_id, request.transaction_timeout_ms) == ("daily/5/0/1", 2000)
    assert request.run is None
    assert request.parent is not None
    assert (request.parent.producer_id, request.parent.producer_epoch) == (7, 3)


def test_the_end_of_a_batch_has_its_run_and_winners() -> None:
    row = requests.winner(Receipt("daily/5/0/0", 9, 1, ()))
    request = requests.end_batch(RUN, 5, iter([row]), commit=True)
    identity = request.transactional_id, request.producer_id, request.producer_epoch
    assert identity == ("daily", 7, 3)
    assert request.committed
    wanted = request.commit_set
    assert wanted is not None
    assert (wanted.query_id, wanted.run_id, wanted.batch) == ("query", "run", 5)
    assert wanted.winners == [row]
    assert not requests.end_batch(RUN, 5, [], commit=False).committed


def test_a_winner_has_the_counts_of_each_topic_in_order() -> None:
    """The coordinator compares a repeated set by its bytes."""
    written = RecordCount("orders", 1, 4), RecordCount("bills", 0, 2), RecordCount("orders", 0, 3)
    row = requests.winner(Receipt("daily/5/0/0", 9, 1, written))
    assert (row.transactional_id, row.producer_id, row.producer_epoch) == ("daily/5/0/0", 9, 1)
    found = {each.name: [(p.index, p.records) for p in each.partitions] for each in row.topics}
    assert found == {"bills": [(0, 2)], "orders": [(0, 3), (1, 4)]}


def test_a_removal_has_no_identity() -> None:
    request = requests.remove_sink("daily")
    assert request.removes_sink
    assert not request.committed
    assert (request.transactional_id, request.producer_id) == ("daily", -1)


def test_a_batch_below_the_next_one_is_committed() -> None:
    assert [RUN.has_committed(batch) for batch in (4, 5, 6)] == [True, False, False]
    assert not QueryRun("daily", "query", "run", 7, 3).has_committed(0)


def test_each_attempt_of_a_task_has_its_own_id_below_the_sink() -> None:
    assert RUN.child_id(5, 0, 12) == "daily/5/0/12"
    with pytest.raises(ValueError, match="negative"):
        RUN.child_id(5, 0, -1)


def test_runs_and_receipts_can_be_pickled() -> None:
    receipt = Receipt(
        "daily/5/0/0", 9, 1, (RecordCount("orders", 0, 3), RecordCount("orders", 1, 4))
    )
    assert pickle.loads(pickle.dumps((RUN, receipt))) == (RUN, receipt)
    assert receipt.records == 7
