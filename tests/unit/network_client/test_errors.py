from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.network_client.errors import (
    InvalidResponseError,
    NetworkClientError,
    NoCommonVersionError,
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidResponseError("Fetch v4: 1 byte left over"), ErrorCode.INVALID_REQUEST),
        (NoCommonVersionError("Fetch: supports 4 to 4"), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_the_same_request_would_fail_again(error: NetworkClientError, code: ErrorCode) -> None:
    """Clients retry by the code: a peer that breaks the protocol once would do it again."""
    assert error.code is code
    assert not error.code.retriable
    assert "Fetch" in str(error)
