"""The requesting side of a connection, without I/O. Clients use it, and brokers that call brokers.

`dialogue.py` negotiates versions, encodes requests and matches responses. It knows no socket, no
clock and no time limit; its callers do, such as `client/connection.py`.
"""
