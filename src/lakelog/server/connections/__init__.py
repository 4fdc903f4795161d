"""Client connections: accepting them, receiving requests, sending responses, and their limits.

Start with `connection`. Nothing here knows an API: requests are handed to a `RequestSink`, and
`requests.dispatch` is one.
"""
