"""Administration: topics, groups and configurations."""

from __future__ import annotations

from lakelog.client.admin.api import Admin, LogDir
from lakelog.client.admin.configs import ConfigEntry, ConfigSource, ResourceType
from lakelog.client.admin.group_descriptions import Group, GroupMember
from lakelog.client.admin.groups import GroupListing, Lag

__all__ = [
    "Admin",
    "ConfigEntry",
    "ConfigSource",
    "Group",
    "GroupListing",
    "GroupMember",
    "Lag",
    "LogDir",
    "ResourceType",
]
