"""Reading for Fetch requests, whether the request is decoded or repeats an earlier one.

Start with `reading`, which reads one partition; `pending` is a whole request until it is answered.
`lakelog.replica` has the sessions and the waiting, and `connections.send_queue` sends the bytes.
"""
