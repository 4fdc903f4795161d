"""Removes groups and offsets of a shard: on request, when they expire, and to make room.

`deletion` serves DeleteGroups and OffsetDelete, `cleanup` deletes expired offsets and empty groups,
`eviction` deletes newcomers when there is no room for new groups.
"""
