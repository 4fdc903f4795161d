from __future__ import annotations

import pytest

from lakelog.cli.commands.txn import (
    aborted,
    chosen,
    document,
    hanging_listing,
    known_state,
    listing,
    without_children,
)
from lakelog.cli.failures import CliError
from lakelog.cli.main import run
from lakelog.client.admin.transactions import (
    ActiveProducer,
    HangingTransaction,
    SinkChild,
    SinkControl,
    Transaction,
    TransactionListing,
)

KEY = ("orders", 3)


def producer(producer_id: int, start: int) -> ActiveProducer:
    return ActiveProducer(producer_id, 0, 5, 1_000, 2, start)


def test_a_listing_names_every_id_and_its_coordinator() -> None:
    (row,) = listing([TransactionListing("billing", 7, "Ongoing", 1)]).rows
    assert row == {
        "transactional_id": "billing",
        "state": "Ongoing",
        "producer_id": 7,
        "coordinator": 1,
    }


def test_a_listing_with_a_sink_also_shows_next_batches_and_open_children() -> None:
    sink = TransactionListing("daily", 8, "Empty", 2, next_batch=5, open_children=3)
    found = listing([TransactionListing("billing", 7, "Ongoing", 1), sink])
    assert found.columns[-2:] == ("next_batch", "open_children")
    assert (found.rows[1]["next_batch"], found.rows[1]["open_children"]) == (5, 3)
    assert "next_batch" not in found.rows[0]


def test_a_listing_leaves_the_children_of_sinks_out() -> None:
    ids = ["billing", "daily", "daily/5/0/1", "a/b/c", "a/1/2", "daily#2/5/0/12"]
    found = [TransactionListing(name, 7, "Ongoing", 1) for name in ids]
    shown = [row.transactional_id for row in without_children(found)]
    assert shown == ["billing", "daily", "a/b/c", "a/1/2"]


def test_a_sink_is_described_with_its_query_and_open_children() -> None:
    child = SinkChild("daily/5/0/1", "Ongoing", 5_000, 2)
    sink = SinkControl("query", "run", 5, (child,))
    found = document(Transaction("daily", "Empty", 8, 1, 60_000, -1, (), sink), 12_000)
    assert (found.data["query_id"], found.data["run_id"], found.data["next_batch"]) == (
        "query",
        "run",
        5,
    )
    assert found.data["children"] == [
        {
            "transactional_id": "daily/5/0/1",
            "state": "Ongoing",
            "start": "1970-01-01T00:00:05.000Z",
            "partitions": 2,
        }
    ]
    assert "partitions" not in found.data


def test_a_hanging_transaction_is_shown_with_its_place_and_producer() -> None:
    (row,) = hanging_listing([HangingTransaction("orders", 3, producer(7, 40))]).rows
    assert row == {
        "topic": "orders",
        "partition": 3,
        "producer_id": 7,
        "producer_epoch": 0,
        "start_offset": 40,
        "last_write": "1970-01-01T00:00:01.000Z",
    }


def test_a_description_says_how_long_it_has_been_running() -> None:
    found = Transaction("billing", "Ongoing", 7, 3, 60_000, 5_000, (("b", 0), ("a", 1)))
    data = document(found, 12_000).data
    assert (data["running_ms"], data["start_ms"]) == (7_000, 5_000)
    assert data["start"] == "1970-01-01T00:00:05.000Z"
    assert data["partitions"] == [
        {"topic": "a", "partition": 1},
        {"topic": "b", "partition": 0},
    ]


def test_a_completed_transaction_has_no_running_time() -> None:
    over = Transaction("billing", "CompleteCommit", 7, 3, 60_000, 5_000, ())
    assert document(over, 12_000).data["running_ms"] is None
    never = Transaction("billing", "Empty", 7, 0, 60_000, -1, ())
    data = document(never, 12_000).data
    assert (data["start"], data["start_ms"], data["running_ms"]) == (None, None, None)


def test_the_only_open_transaction_is_meant() -> None:
    assert chosen([producer(1, -1), producer(2, 40)], KEY, None).producer_id == 2
    assert chosen([producer(1, 10), producer(2, 40)], KEY, 1).producer_id == 1


def test_which_is_meant_must_be_clear() -> None:
    with pytest.raises(CliError, match="several") as several:
        chosen([producer(1, 10), producer(2, 40)], KEY, None)
    assert "1, 2" in str(several.value.hint)
    for rows, wanted in (([], None), ([producer(1, -1)], None), ([producer(1, 10)], 2)):
        with pytest.raises(CliError, match="no transaction") as none:
            chosen(rows, KEY, wanted)
        assert none.value.entry.code == "LL0212"


def test_a_duration_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["txn", "list", "--longer-than", "soon"]) == 2
    assert "not a duration" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["Ongoing", "ongoing", "ONGOING"])
def test_a_state_is_known_in_any_case(text: str) -> None:
    assert known_state(text) == "Ongoing"


@pytest.mark.parametrize(("text", "hint"), [("Ongong", "'Ongoing'"), ("x", "PrepareCommit, ")])
def test_an_unknown_state_is_refused_with_the_known_ones(text: str, hint: str) -> None:
    with pytest.raises(CliError) as caught:
        known_state(text)
    assert (caught.value.code, hint in caught.value.hint) == ("LL0902", True)
    assert caught.value.message == f"unknown state '{text}'"


def test_an_abort_reports_the_aborted_transaction() -> None:
    assert aborted(KEY, producer(7, 40)).data == {
        "topic": "orders",
        "partition": 3,
        "producer_id": 7,
        "producer_epoch": 0,
        "start_offset": 40,
    }
