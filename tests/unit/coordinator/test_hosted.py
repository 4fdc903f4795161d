from __future__ import annotations

from typing import Any, cast

from lakelog.coordinator.hosted import Hosted, Writing
from lakelog.coordinator.shard import Result, TransactionMarker

_VALUE = bytes(400)


def _queued(*results: Result[Any]) -> Hosted[Any]:
    nothing = cast(Any, None)
    writing = Writing("t", nothing, nothing, 1000, 0, nothing)
    hosted: Hosted[Any] = Hosted(0, 0, nothing, nothing, writing)
    for result in results:
        hosted.queue.append((result, [(b"key", _VALUE) for _ in result.records]))
    return hosted


def _sizes(hosted: Hosted[Any]) -> list[int]:
    sizes = []
    while hosted.queue:
        results, records = hosted.take_batch(1000)
        assert len(records) == sum(len(result.records) for result in results)
        sizes.append(len(results))
    return sizes


def test_decisions_share_a_batch_up_to_its_size() -> None:
    assert _sizes(_queued(*[Result("r")] * 5)) == [2, 2, 1]


def test_a_decision_larger_than_a_batch_has_one_of_its_own() -> None:
    assert _sizes(_queued(Result("r"), Result("rrrr"), Result("r"))) == [1, 1, 1]


def test_a_part_of_a_transaction_and_its_end_share_no_batch() -> None:
    """A batch has one producer, and a marker is a batch."""
    part: Result[Any] = Result("r", producer=(7, 0))
    end: Result[Any] = Result(marker=TransactionMarker(7, 0, True, 0, 2))
    plain: Result[Any] = Result("r")
    assert _sizes(_queued(plain, part, part, plain, end, plain)) == [1, 1, 1, 1, 1, 1]
