from __future__ import annotations

import pytest

from lakelog.protocol.groups import ListGroupsRequest
from lakelog.server.handlers.list_groups import handle
from memory_broker import MemoryBroker
from memory_clients import GROUP, commit, join_and_sync


@pytest.mark.parametrize(
    ("states", "types", "expected"),
    [
        ([], [], {GROUP, "offsets only"}),
        (["Stable"], [], {GROUP}),
        (["stable", "Empty"], [], {GROUP, "offsets only"}),
        (["Dead"], [], set()),
        ([], ["classic"], {GROUP, "offsets only"}),
        ([], ["consumer"], set()),
        (["Empty"], ["Classic"], {"offsets only"}),
    ],
)
def test_groups_are_filtered_by_state_and_type(
    coordinators: MemoryBroker, states: list[str], types: list[str], expected: set[str]
) -> None:
    join_and_sync(coordinators)
    commit(coordinators, 5, "offsets only")
    request = ListGroupsRequest(states_filter=states, types_filter=types)
    response = coordinators.ask(handle, request, 5)
    assert {group.group_id for group in response.groups} == expected


def test_states_came_with_version_4_and_types_with_version_5(coordinators: MemoryBroker) -> None:
    join_and_sync(coordinators)
    found = {
        version: coordinators.ask(handle, ListGroupsRequest(), version).groups[0]
        for version in (3, 4, 5)
    }
    assert {version: group.group_state for version, group in found.items()} == {
        3: "",
        4: "Stable",
        5: "Stable",
    }
    assert [found[version].group_type.lower() for version in (4, 5)] == ["", "classic"]
