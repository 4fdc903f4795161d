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

__all__ = [
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
]
