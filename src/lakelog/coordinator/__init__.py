"""Coordinators: event-sourced state over the partitions of an internal topic.

A handler reads state and returns records and a reply; only `replay` of a committed record changes
what is durable, so a failover is the normal path. `shard` says what a shard is, `host` runs the
shards of a broker, `group` is the group coordinator.
"""
