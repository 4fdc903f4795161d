"""Listener addresses as Kafka's `listeners` writes them: NAME://HOST:PORT."""

from __future__ import annotations

import re
from typing import NamedTuple

_ENDPOINT = re.compile(r"([A-Za-z0-9._-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]]*)):([0-9]{1,5})")


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
