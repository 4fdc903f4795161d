from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lakelog.client.consumer.types import checked_partitions, checked_topics


@pytest.mark.parametrize("wrong", ["orders", ["orders"], [("orders", "0")], [("orders",)], [5]])
def test_partitions_are_pairs(wrong: Any) -> None:
    with pytest.raises(TypeError, match=r"such as \('orders', 0\), not .*; subscribe\(\)"):
        checked_partitions(wrong)
    assert checked_partitions({("orders", 0): 5}) == [("orders", 0)]


def test_the_number_of_a_partition_may_come_from_a_column() -> None:
    number: Any = np.int64(1)
    assert checked_partitions([("orders", number)]) == [("orders", 1)]


def test_topics_are_a_list_of_names() -> None:
    assert checked_topics(iter(["orders"])) == ["orders"]
    with pytest.raises(TypeError, match=r"must be a list, such as \['orders'\], not str"):
        checked_topics("orders")
    wrong: Any = [("orders", 0)]
    with pytest.raises(TypeError, match="a topic is a name, such as 'orders', not"):
        checked_topics(wrong)
