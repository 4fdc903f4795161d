"""The identity of a client, as Kafka's `KafkaPrincipal` names it, and its permissions and quotas.

Authorizers and quotas (KIP-13, KIP-124, KIP-219) are interfaces. Operations on single topics and
groups are not asked here: a handler answers them per resource.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, Protocol

from lakelog.base.errors import ErrorCode
from lakelog.protocol.api import Api


class Principal(NamedTuple):
    """The identity of a client. ACLs and quotas refer to it as `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


BROKER = "Broker"
"""The kind of a broker of the cluster; its name is the node id."""

ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of a client that has not been authenticated."""


def broker_principal(node_id: int) -> Principal:
    """Return the principal of a broker that has proved itself (`broker_proof`)."""
    return Principal(BROKER, str(node_id))


def is_broker(principal: Principal, node_id: int) -> bool:
    """Return whether the client is this broker."""
    return principal.kind == BROKER and principal.name == str(node_id)


class Authorizer(Protocol):
    """The decisions of one broker. Code that changes one calls `Admission.revoke` afterwards."""

    def authorize(self, principal: Principal, api: Api) -> ErrorCode:
        """Return NONE if the principal may use the API, else the code of the refusal."""
        ...


class BrokersApart:
    """The authorizer of a broker without ACLs: it distinguishes brokers from clients.

    As in Kafka, every principal may use every API. Only the APIs between brokers, with which a
    client could change the metadata, are for brokers that have proved themselves.
    """

    def __init__(self, between_brokers: Collection[int]) -> None:
        """between_brokers: keys of these APIs."""
        self._between_brokers = between_brokers

    def authorize(self, principal: Principal, api: Api) -> ErrorCode:
        """Return CLUSTER_AUTHORIZATION_FAILED for a client that uses an API between brokers."""
        if api.key in self._between_brokers and principal.kind != BROKER:
            return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return ErrorCode.NONE


class Quotas(Protocol):
    """The quotas of one broker's clients. Code that changes one calls `Admission.revoke`
    afterwards."""

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
