"""The identity of a client, as Kafka's `KafkaPrincipal` names it."""

from __future__ import annotations

from typing import NamedTuple


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
