"""Administration: topics, groups and configurations."""

from __future__ import annotations

from lakelog.client.admin.api import Admin, LogDir
from lakelog.client.admin.configs import (
    ConfigEntry,
    ConfigSource,
    ConfigSynonym,
    ResourceType,
)
from lakelog.client.admin.groups import Group, GroupListing, GroupMember, Lag
from lakelog.client.admin.transactions import ActiveProducer, Transaction, TransactionListing

__all__ = [
    "ActiveProducer",
    "Admin",
    "ConfigEntry",
    "ConfigSource",
    "ConfigSynonym",
    "Group",
    "GroupListing",
    "GroupMember",
    "Lag",
    "LogDir",
    "ResourceType",
    "Transaction",
    "TransactionListing",
]
