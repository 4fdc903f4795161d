from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.protocol.describe_groups import DescribedGroup
from lakelog.server.coordinators.group_operations import authorize

READ, DELETE, DESCRIBE = 3, 6, 8


def test_only_groups_that_were_found_allow_operations() -> None:
    found = DescribedGroup(group_id="found")
    missing = DescribedGroup(group_id="gone", error_code=ErrorCode.GROUP_ID_NOT_FOUND)
    authorize([found, missing])
    for operation in (READ, DELETE, DESCRIBE):
        assert found.authorized_operations & 1 << operation
    assert missing.authorized_operations == -(2**31)
