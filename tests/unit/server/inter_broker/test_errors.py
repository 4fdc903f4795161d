from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.server.inter_broker.errors import (
    PeerBusyError,
    PeerDisconnectedError,
    PeerError,
    PeerRefusedError,
    PeerTimedOutError,
    PeerUnreachableError,
    PeerUnsupportedError,
)

_NOT_SENT = {
    PeerUnreachableError: ErrorCode.BROKER_NOT_AVAILABLE,
    PeerBusyError: ErrorCode.BROKER_NOT_AVAILABLE,
    PeerRefusedError: ErrorCode.INCONSISTENT_CLUSTER_ID,
    PeerUnsupportedError: ErrorCode.UNSUPPORTED_VERSION,
}
_SENT = {
    PeerDisconnectedError: ErrorCode.NETWORK_EXCEPTION,
    PeerTimedOutError: ErrorCode.REQUEST_TIMED_OUT,
}


@pytest.mark.parametrize("kind", PeerError.__subclasses__())
def test_only_a_sent_request_may_have_been_carried_out(kind: type[PeerError]) -> None:
    """A caller repeats the others at once; a wrong answer would run such a request twice."""
    error = kind("to 2 at b:9092")  # type: ignore[arg-type]
    assert error.is_outcome_unknown is (kind in _SENT)
    assert error.code is (_NOT_SENT | _SENT)[kind]
    assert error.message == "to 2 at b:9092"
