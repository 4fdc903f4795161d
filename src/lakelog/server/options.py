"""What `serve` is started with, and what it says once it is ready."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lakelog.base.broker_config import BrokerConfig


@dataclass(frozen=True, slots=True)
class ReadyInfo:
    """`listeners` are (name, host, port) as bound, with the real port where 0 was asked."""

    listeners: tuple[tuple[str, str, int], ...]
    data: Path
    node_id: int
    cluster_id: str


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """`listen` is HOST:PORT; when empty, the configuration's `listeners` are used.

    `advertise` maps a listener's name to the (host, port) that clients are told.
    """

    data: Path
    config: BrokerConfig
    listen: str = ""
    advertise: Mapping[str, tuple[str, int]] = field(default_factory=dict)
    node_id: int = 1
    ready: Callable[[ReadyInfo], None] = lambda info: None


class StartError(Exception):
    """The broker cannot start; the text says why and what to do."""
