"""Listener addresses as Kafka's `listeners` writes them, NAME://HOST:PORT, and their protocols."""

from __future__ import annotations

import re
from enum import Enum
from typing import NamedTuple

_ENDPOINT = re.compile(r"([A-Za-z0-9._-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]]*)):([0-9]{1,5})")


class SecurityProtocol(Enum):
    """Whether a listener encrypts (SSL) and authenticates clients (SASL), by Kafka's names."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_sasl(self) -> bool:
        """Whether a client must authenticate with SASL before its first request."""
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


class Endpoint(NamedTuple):
    """The name and address of one listener; an empty `host` stands for every interface."""

    name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """HOST:PORT, with an IPv6 address in brackets."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Return the endpoint. Raises `ValueError` for malformed text."""
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match[4]) > 65_535:
        raise ValueError(f"{text!r} is not NAME://HOST:PORT")
    return Endpoint(match[1].upper(), match[2] or match[3] or "", int(match[4]))
