"""Administration: topics, groups and configurations.

Each name is imported at its first use. A command that lists topics does not need the messages of
settings, whose declarations would take time. Read `api.py` first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.client.admin.api import Admin
    from lakelog.client.admin.configs import ResourceType

__all__ = ["Admin", "ResourceType"]

_HOME_OF = {"Admin": "api", "ResourceType": "configs"}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
