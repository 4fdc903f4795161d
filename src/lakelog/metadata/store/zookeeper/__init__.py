"""The metadata log in a ZooKeeper ensemble (3.8 or 3.9), for brokers on many hosts.

`store.py` is the `MetadataStore`. `session.py` is the interface to ZooKeeper, over kazoo in
`kazoo_session.py` and over a simulated ensemble in `lakelog.testing`. `layout.py` draws the nodes;
`chain.py` detects an ensemble that lost writes.
"""
