"""Removes groups and offsets of a shard: on request, when they expire, and to make room.

`deletion` serves DeleteGroups and OffsetDelete, `cleanup` deletes what has expired, `eviction`
deletes newcomers when there is no room for new groups.
"""
