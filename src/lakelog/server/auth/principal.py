"""The identity of a client, as Kafka's `KafkaPrincipal` names it."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """The identity of a client. ACLs and quotas refer to it as `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
"""The principal of a client that has not been authenticated."""
