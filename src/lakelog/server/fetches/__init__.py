"""Reading for Fetch requests, whether the request is decoded or repeats an earlier one.

Start with `reading`, which reads one partition; `pending` is a whole request until it is answered.
Sessions and waiting are `lakelog.replica`'s; the bytes are sent by `connections.send_queue`.
"""
