"""Subscriptions by regular expression."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.coordinator.group.consumer.regex import check_regex, matching


def test_an_invalid_expression_is_refused_with_its_error() -> None:
    check_regex("orders.*|clicks")
    with pytest.raises(KafkaError, match=r"`orders\[` is not .*: missing \]") as refused:
        check_regex("orders[")
    assert refused.value.code is ErrorCode.INVALID_REGULAR_EXPRESSION


def test_an_expression_matches_whole_names() -> None:
    assert matching("o.*s", ["orders", "orders-old", "torders"]) == {"orders"}
    assert matching("orders[", ["orders["]) == frozenset()
