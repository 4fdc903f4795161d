"""Fetch requests until they are answered, whether a request is decoded or repeats an earlier one.

`reading` reads one partition. `pending` reads all partitions of a request, waits, and encodes the
response to a decoded request; `lakelog.server.fast_path` encodes the response to a repeated one.
`lakelog.replica` has the sessions and the purgatory, and
`connections.send_queue` sends the bytes.
"""
