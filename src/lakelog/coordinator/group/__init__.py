"""The group coordinator: groups of both protocols and committed offsets, in `__consumer_offsets`.

A broker calls `coordinator`, which makes the values of `requests` and `offset_requests`. `shard`
decides them for one partition, over `state`; `change_queue` serializes the changes of one group,
`records` are the contents of the log, `config` has the broker's configuration and topics.

`classic` contains groups of the classic protocol, `consumer` groups of the consumer protocol
(KIP-848), `offsets` the committed offsets of both, `offset_commits` the checks of a commit.
`removal` deletes groups and offsets; `queries` answers requests that change nothing. `limits`
bounds the memory that clients can take; when it is used up, `coordinator` chooses the groups to
evict.
"""
