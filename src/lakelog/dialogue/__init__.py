"""The requesting side of a connection, without I/O. Clients use it, and brokers that call brokers.

`dialogue.py` negotiates versions, encodes requests and matches responses; `frames.py` finds
responses in received bytes. Neither knows a socket, a clock or a time limit; their callers do:
`client/connection.py` blocks, `server/peers/` runs on the event loop.
"""
