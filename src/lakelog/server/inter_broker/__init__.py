"""Outgoing connections to other brokers.

Start with `exchange.py`: all decisions about the requests to one peer, without I/O. `peer.py` gives
it a socket and timers, and has one peer for each registered broker; `watch.py` checks that brokers
can be reached at their registered addresses.
"""
