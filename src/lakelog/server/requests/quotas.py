"""The interface of client quotas (KIP-13, KIP-124, KIP-219)."""

from __future__ import annotations

from typing import Protocol

from lakelog.protocol.api import Api
from lakelog.server.auth.principal import Principal


class Quotas(Protocol):
    """The quotas of one broker's clients. Code that changes one calls `Gate.revoke` afterwards."""

    def charge(self, principal: Principal, client_id: str, api: Api, size_bytes: int) -> int | None:
        """Charge a request of `size_bytes` to the client's quota.

        Return the time in ms for which the client is to be throttled (KIP-219), 0 while it is
        within its quota, and None for a client without a quota.
        """
        ...


class NoQuotas:
    """The quotas of a broker on which no client has one."""

    def charge(self, principal: Principal, client_id: str, api: Api, size_bytes: int) -> int | None:
        """Return None."""
        return None
