"""Errors of a network client. They do not show whether earlier requests were executed."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError


class NetworkClientError(KafkaError):
    """A network client cannot send a request, or cannot continue."""


class InvalidResponseError(NetworkClientError):
    """The peer broke the protocol; the position in its stream of bytes is unknown."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


class NoCommonVersionError(NetworkClientError):
    """Both sides have no common version of an API. The request was not encoded."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.UNSUPPORTED_VERSION, message)


class NegotiationError(NetworkClientError):
    """The peer answered ApiVersions with the error `code`.

    REBOOTSTRAP_REQUIRED: it belongs to another cluster, or has another node id (KIP-1242).
    """
