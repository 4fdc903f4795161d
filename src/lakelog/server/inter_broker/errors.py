"""Failures of a request to another broker; the type says whether it may have been carried out."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError


class PeerError(KafkaError):
    """A request to a peer has no response."""

    is_outcome_unknown = False
    """False: the peer has definitely not carried out the request. True: it may have."""


class PeerUnreachableError(PeerError):
    """Not sent: there is no connection, or it was not ready in time."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class PeerRefusedError(PeerError):
    """Not sent: the process at the peer's address is not the expected broker."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INCONSISTENT_CLUSTER_ID, message)


class PeerBusyError(PeerError):
    """Not sent: too many requests to this peer wait already."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.BROKER_NOT_AVAILABLE, message)


class PeerUnsupportedError(PeerError):
    """Not sent: the peer and this broker have no common version of the API."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class PeerDisconnectedError(PeerError):
    """The connection was lost before the response came."""

    is_outcome_unknown = True

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.NETWORK_EXCEPTION, message)


class PeerTimedOutError(PeerError):
    """The response did not come in time. The connection is closed: it may still come."""

    is_outcome_unknown = True

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, message)
