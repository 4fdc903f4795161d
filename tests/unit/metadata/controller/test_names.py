from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.names import check_collision, check_topic_name


@pytest.mark.parametrize("name", ["a", "A-z_0.9", "...", "x" * 249])
def test_a_legal_name(name: str) -> None:
    check_topic_name(name)


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("", "empty"),
        (".", r"cannot be '\.'"),
        ("..", r"cannot be '\.'"),
        ("x" * 250, "250 characters; at most 249"),
        ("a b", "only ASCII letters"),
        ("é", "only ASCII letters"),
        ("a\n", "only ASCII letters"),
    ],
)
def test_an_illegal_name_is_rejected_with_the_reason(name: str, problem: str) -> None:
    with pytest.raises(KafkaError, match=problem) as caught:
        check_topic_name(name)
    assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


def test_names_that_are_equal_in_metrics_collide() -> None:
    names = {"a_b": "a.b"}
    check_collision("a.b", names)
    check_collision("ab", names)
    with pytest.raises(KafkaError, match=r"a_b differs from a\.b only in"):
        check_collision("a_b", names)
