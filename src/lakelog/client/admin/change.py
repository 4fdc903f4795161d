"""Requests that must not be sent twice."""

from __future__ import annotations

from typing import TypeVar

from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError, OutcomeUnknownError
from lakelog.wire.schema import Message

R = TypeVar("R", bound=Message)


def change(cluster: Cluster, request: Message, kind: type[R], what: str) -> R:
    """The answer of some broker. `OutcomeUnknownError` if none came once it was sent."""
    try:
        return cluster.ask_once(request, kind)
    except ConnectionLostError as error:
        text = f"{what} may or may not have been done: {error.message}"
        raise OutcomeUnknownError(error.code, text) from error
