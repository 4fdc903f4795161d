"""The response to a request that the gate refuses, for APIs whose response has one error code."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.server.connections.request_sink import ProtocolViolation
from lakelog.server.requests.context import Context
from lakelog.wire.schema import Message


def refuse(context: Context, request: Message, code: ErrorCode) -> Message:
    """Return a response of which `error_code` is `code`.

    Raises `ProtocolViolation` for a response that has no such field in the request's version:
    without a code the client would take the request for done.
    """
    api = context.api
    fields = (field for field in api.response.__fields__ if field.name == "error_code")
    if not any(context.version in field.versions for field in fields):
        raise ProtocolViolation(f"{api.name} v{context.version} is refused with {code.name}")
    return api.response(error_code=code)
