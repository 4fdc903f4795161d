from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.transactions import ListTransactionsRequest
from transaction_setup import Setup, in_virtual_time


@pytest.mark.parametrize("pattern", ["(", "[z-a]", r"(a)\1", "a{2000}{2000}"])
def test_a_pattern_that_is_none(pattern: str) -> None:
    @in_virtual_time()
    async def scenario(setup: Setup) -> None:
        request = ListTransactionsRequest(transactional_id_pattern=pattern)
        response = setup.coordinator.admin.list_transactions(request)
        assert response.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    scenario()
