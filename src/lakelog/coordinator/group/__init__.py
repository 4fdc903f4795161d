"""The group coordinator: classic groups and committed offsets, over `__consumer_offsets`.

`coordinator` is what a broker calls, `shard` the state of one partition. Under these, `classic` is
a group's state, `rebalance` its turns, and the APIs are `join`, `sync`, `leave`, `offsets`,
`fetch` and `listing`; `expiry` says what may be forgotten.
"""
