"""The requesting side of a connection, without I/O. Clients use it, and brokers that call brokers.

`requests.py` negotiates versions, encodes requests and matches responses; `frames.py` finds
responses in received bytes. Neither knows a socket, a clock or a time limit; their callers do:
`client/connection.py` blocks, `server/inter_broker/` runs on the event loop.
"""
