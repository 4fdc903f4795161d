"""Administration: topics, groups and configurations.

Each name is imported at its first use. A command that lists topics does not need the messages of
groups and transactions, whose declarations would take a third of its time. Read `api.py` first.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lakelog.client.admin.api import Admin, LogDir
    from lakelog.client.admin.brokers import ClusterDescription, RegisteredBroker
    from lakelog.client.admin.configs import ConfigEntry, ConfigSource, ConfigSynonym, ResourceType
    from lakelog.client.admin.groups import Group, GroupListing, GroupMember, Lag
    from lakelog.client.admin.transactions import (
        ActiveProducer,
        HangingTransaction,
        SinkChild,
        SinkControl,
        Transaction,
        TransactionListing,
    )

__all__ = [
    "ActiveProducer",
    "Admin",
    "ClusterDescription",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "Group",
    "GroupListing",
    "GroupMember",
    "HangingTransaction",
    "Lag",
    "LogDir",
    "RegisteredBroker",
    "ResourceType",
    "SinkChild",
    "SinkControl",
    "Transaction",
    "TransactionListing",
]

_HOMES = {
    "api": ("Admin", "LogDir"),
    "brokers": ("ClusterDescription", "RegisteredBroker"),
    "configs": ("ConfigEntry", "ConfigSource", "ConfigSynonym", "ResourceType"),
    "groups": ("Group", "GroupListing", "GroupMember", "Lag"),
    "transactions": (
        "ActiveProducer",
        "HangingTransaction",
        "SinkChild",
        "SinkControl",
        "Transaction",
        "TransactionListing",
    ),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
