"""UnregisterBroker (key 64): removes the registration of a broker."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, error_text, int16, int32


class UnregisterBrokerRequest(Message, versions="0", flexible="0+"):
    """Names the broker."""

    broker_id: int = int32()


class UnregisterBrokerResponse(Message, versions="0", flexible="0+"):
    """The result."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()


API = Api(64, UnregisterBrokerRequest, UnregisterBrokerResponse)
