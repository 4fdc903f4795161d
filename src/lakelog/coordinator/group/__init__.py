"""The group coordinator: groups of both protocols and committed offsets, in `__consumer_offsets`.

`coordinator` and `admin` are what a broker calls, `shard` decides for one partition, over `state`;
`turns` says who may decide now, `records` and `consumer_records` what is written.

A classic group is `classic`, its steps `rebalance`, its APIs `join`, `sync` and `leave`. A consumer
group (KIP-848) is `consumer`: `consumer_heartbeat` is its API, `consumer_rebalance` its steps, of
which `reconcile` is the one that keeps two members from owning one partition; `classic_members`
lets clients of the older protocol take part, and `migration` changes one kind into the other.

Offsets are `offsets` and `fetch`; `expiry` and `upkeep` forget what nobody needs, `deletion` what
somebody wants gone. `questions` only looks.
"""
