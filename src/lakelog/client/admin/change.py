"""Requests that must not be repeated."""

from __future__ import annotations

from typing import TypeVar

from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError, OutcomeUnknownError, check
from lakelog.wire.schema import Message

R = TypeVar("R", bound=Message)

_MAY_FOLLOW = "Check whether the change has been made before you repeat it."
"""The broker has answered: a longer wait for its answer would not help."""


def change(cluster: Cluster, request: Message, kind: type[R], what: str) -> R:
    """Return the response of one broker.

    Raises `UnreachableError` if the request was not sent, and `OutcomeUnknownError` if it was sent
    and no response came.
    """
    try:
        return cluster.ask_once(request, kind)
    except ConnectionLostError as error:
        text = f"{what} may or may not have been done: {error.message}"
        raise OutcomeUnknownError(error.code, text) from error


def check_change(code: int, where: str, said: str | None) -> None:
    """Raise `ClientError` unless `code`, the result of a change, is 0; arguments as for `check`.

    Raises `OutcomeUnknownError` for REQUEST_TIMED_OUT: the broker may have made the change, or make
    it later.
    """
    if code == ErrorCode.REQUEST_TIMED_OUT:
        text = f"{where}: {said or 'the change may or may not have been made'}"
        raise OutcomeUnknownError(ErrorCode.REQUEST_TIMED_OUT, text, hint=_MAY_FOLLOW)
    check(code, where, said)
