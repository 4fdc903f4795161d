from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.producer.verdict import Verdict, judge, maybe_written


def test_every_code_has_a_verdict() -> None:
    for code in ErrorCode:
        for is_first in (False, True):
            verdict = judge(code, is_first=is_first)
            assert not (verdict is Verdict.DONE and maybe_written(code))


@pytest.mark.parametrize(
    ("code", "is_first", "verdict"),
    [
        (ErrorCode.NONE, True, Verdict.DONE),
        (ErrorCode.DUPLICATE_SEQUENCE_NUMBER, True, Verdict.DONE),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, True, Verdict.RENUMBER),
        (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, False, Verdict.RETRY),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, True, Verdict.RETRY),
        (ErrorCode.MESSAGE_TOO_LARGE, True, Verdict.FAIL),
        (ErrorCode.INVALID_PRODUCER_EPOCH, True, Verdict.FATAL),
        (ErrorCode.PRODUCER_FENCED, False, Verdict.FATAL),
    ],
)
def test_the_next_step_after_an_error(code: ErrorCode, is_first: bool, verdict: Verdict) -> None:
    assert judge(code, is_first=is_first) is verdict


@pytest.mark.parametrize(
    ("code", "maybe"),
    [
        (ErrorCode.REQUEST_TIMED_OUT, True),
        (ErrorCode.NETWORK_EXCEPTION, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, True),
        (ErrorCode.NOT_ENOUGH_REPLICAS, False),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, False),
        (ErrorCode.CORRUPT_MESSAGE, False),
    ],
)
def test_a_record_that_may_be_stored_is_never_reported_as_not_written(
    code: ErrorCode, maybe: bool
) -> None:
    assert maybe_written(code) is maybe
