from __future__ import annotations

import pytest

from fake_broker import FakeBroker, FakeContext
from lakelog.base.errors import ErrorCode
from lakelog.protocol.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from lakelog.server.handlers.describe_groups import handle

UNKNOWN = -(2**31)


class FakeGroups:
    """An existing and an unknown group."""

    @property
    def admin(self) -> FakeGroups:
        return self

    def describe_groups(self, request: DescribeGroupsRequest, version: int) -> FakeGroups:
        return self

    def result(self) -> DescribeGroupsResponse:
        found = DescribedGroup(group_id="found")
        missing = DescribedGroup(group_id="missing", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        return DescribeGroupsResponse(groups=[found, missing])


@pytest.mark.parametrize("wanted", [False, True])
def test_operations_are_set_on_request_and_for_existing_groups(wanted: bool) -> None:
    request = DescribeGroupsRequest(include_authorized_operations=wanted)
    found, missing = handle(
        FakeBroker(groups=FakeGroups()).broker, FakeContext(5).context, request
    ).groups
    assert (found.authorized_operations > 0) is wanted
    assert missing.authorized_operations == UNKNOWN
