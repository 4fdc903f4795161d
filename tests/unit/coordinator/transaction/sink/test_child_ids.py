from __future__ import annotations

import pytest

from lakelog.coordinator.partitioning import partition_for
from lakelog.coordinator.transaction.sink.child_ids import ChildId, child_id, coordinator_key
from sink_setup import Setup
from transaction_setup import in_virtual_time


def test_a_childs_id_has_three_numbers_after_the_sink_id() -> None:
    assert child_id("daily/12/3/40") == ChildId("daily", 12, 3, 40)
    assert coordinator_key("daily/12/3/40") == "daily"


@pytest.mark.parametrize(
    "name",
    [
        "daily",
        "a/b",
        "daily/1/2",
        "daily/1/2/3/4",
        "/1/2/3",
        "d/1/2/x",
        "d/-1/2/3",
        "d/1/2/\u0663",
        "d/1/2/" + "9" * 20,
    ],
)
def test_ids_of_any_other_form_keep_their_partition(name: str) -> None:
    assert child_id(name) is None
    assert coordinator_key(name) == name


@in_virtual_time(partitions=50)
async def test_a_sink_and_all_its_children_have_one_coordinator(setup: Setup) -> None:
    place = setup.coordinator.partition_for
    assert {place(f"daily/{batch}/0/1") for batch in range(100)} == {place("daily")}
    assert place("team/daily") == partition_for("team/daily", 50)
