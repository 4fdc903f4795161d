"""Listener addresses as Kafka's `listeners` writes them: NAME://HOST:PORT."""

from __future__ import annotations

import re
from typing import NamedTuple

from lakelog.base.config import ConfigValue

_ENDPOINT = re.compile(r"([A-Za-z0-9._-]+)://(?:\[([0-9A-Fa-f:.%]+)\]|([^:/\[\]]*)):([0-9]{1,5})")
_PROTECTED = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})


class Endpoint(NamedTuple):
    """One listener. `host` is empty for every interface and has no brackets."""

    name: str
    host: str
    port: int


def parse_endpoint(text: str) -> Endpoint:
    """Raises `ValueError`."""
    match = _ENDPOINT.fullmatch(text.strip())
    if match is None or int(match[4]) > 65_535:
        raise ValueError(f"{text!r} is not NAME://HOST:PORT")
    return Endpoint(match[1].upper(), match[2] or match[3] or "", int(match[4]))


def accepts_endpoints(value: ConfigValue) -> bool:
    """Whether a list names unprotected listeners only, each name and port once."""
    if not isinstance(value, tuple) or not value:
        return False
    try:
        endpoints = [parse_endpoint(text) for text in value]
    except ValueError:
        return False
    names = {endpoint.name for endpoint in endpoints}
    return len(names) == len(endpoints) and not names & _PROTECTED
