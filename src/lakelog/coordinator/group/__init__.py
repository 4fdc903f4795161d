"""The group coordinator: groups of both protocols and committed offsets, in `__consumer_offsets`.

A broker calls `coordinator` and `admin`. `shard` decides for one partition, over `state`;
`change_queue` serializes the changes of one group, `records` is what the log stores.

`classic` are the groups of the classic protocol, `consumer` those of the consumer protocol
(KIP-848), `offsets` the committed offsets of both. `limits`, `memory` and `subscription_size` bound
what clients can make the coordinator remember; `eviction` makes room, in the order of `newcomers`.
`deletion` serves DeleteGroups and OffsetDelete, `queries` and `listing` the requests that change
nothing.
"""
