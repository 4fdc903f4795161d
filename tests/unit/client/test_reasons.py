from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.client.reasons import REASONS, with_reason


def test_a_code_without_a_text_is_described() -> None:
    expected = "group 'billing': the group has members"
    assert with_reason(ErrorCode.NON_EMPTY_GROUP, "group 'billing'") == expected
    assert with_reason(ErrorCode.NON_EMPTY_GROUP, "") == "the group has members"


def test_a_rare_code_appears_by_its_name() -> None:
    assert with_reason(ErrorCode.SNAPSHOT_NOT_FOUND, "x") == "x: SNAPSHOT_NOT_FOUND"


def test_reasons_are_parts_of_a_sentence() -> None:
    """They follow a colon and precede a hint."""
    for code, reason in REASONS.items():
        assert reason[0].islower(), code
        assert not reason.endswith("."), code
    assert ErrorCode.NONE not in REASONS
