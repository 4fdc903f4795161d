from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.server.coordinators.fencing import fenced_code


@pytest.mark.parametrize(
    ("code", "version", "expected"),
    [
        (ErrorCode.PRODUCER_FENCED, 1, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.PRODUCER_FENCED, 2, ErrorCode.PRODUCER_FENCED),
        (ErrorCode.NOT_COORDINATOR, 0, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_older_clients_know_a_fenced_producer_by_its_epoch(
    code: ErrorCode, version: int, expected: ErrorCode
) -> None:
    assert fenced_code(code, version) is expected
