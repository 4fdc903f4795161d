from __future__ import annotations

import pickle

import pytest

from lakelog.client.sink import Receipt, Run, Written

RUN = Run("daily", "query", "run", 7, 3, next_batch=5)


def test_a_batch_below_the_next_one_is_committed() -> None:
    assert [RUN.has_committed(batch) for batch in (4, 5, 6)] == [True, False, False]
    assert not Run("daily", "query", "run", 7, 3).has_committed(0)


def test_each_attempt_of_a_task_has_its_own_id_below_the_sink() -> None:
    assert RUN.child_id(5, 0, 12) == "daily/5/0/12"
    with pytest.raises(ValueError, match="negative"):
        RUN.child_id(5, 0, -1)


def test_runs_and_receipts_can_be_pickled() -> None:
    receipt = Receipt("daily/5/0/0", 9, 1, (Written("orders", 0, 3), Written("orders", 1, 4)))
    assert pickle.loads(pickle.dumps((RUN, receipt))) == (RUN, receipt)
    assert receipt.records == 7
