"""Outgoing connections to other brokers.

Start with `exchange.py`: all decisions about the requests to one peer, without I/O. `peer.py` gives
it a socket and timers, `pool.py` has one peer for each registered broker, and `watch.py` and
`advertised.py` check that brokers can be reached at their registered addresses.
"""
