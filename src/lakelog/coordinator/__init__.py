"""Coordinators: event-sourced state over the partitions of an internal topic.

A handler reads state and returns records and a reply. Only the replay of a committed record changes
durable state, so a failover takes the same path as normal operation. `shard` defines a shard,
`host` runs the shards of a broker, `group` and `transaction` are the two coordinators.
"""
