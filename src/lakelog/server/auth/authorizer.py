"""The interface of authorizers: may a principal use an API?

Operations on single topics and groups are not asked here: a handler answers them per resource.
"""

from __future__ import annotations

from typing import Protocol

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import Api
from lakelog.server.auth.principal import Principal


class Authorizer(Protocol):
    """The decisions of one broker. Code that changes one calls `Gate.revoke` afterwards."""

    def authorize(self, principal: Principal, api: Api) -> ErrorCode:
        """Return NONE if the principal may use the API, else the code of the refusal."""
        ...


class AllowEveryone:
    """The authorizer of a broker without one: as in Kafka, every principal may do everything."""

    def authorize(self, principal: Principal, api: Api) -> ErrorCode:
        """Return NONE."""
        return ErrorCode.NONE
