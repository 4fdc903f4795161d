"""The transaction coordinator (KIP-98, KIP-360, KIP-890).

It gives producers their ids and epochs, fences older ones, and commits or aborts transactions. Its
state is replayed from `__transaction_state`; markers carry the outcome to the partitions.

The broker calls `coordinator`. `shard` holds one partition's transactional ids: `ids` their states,
`producers` the requests of producers, `endings` how transactions end, with their markers;
`transitions` contains the decisions as plain functions. `hanging` aborts the transactions that hang
after a power failure.
"""
