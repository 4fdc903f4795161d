"""The way of a request from its frame to its handler, and of the response back.

Start with `dispatch`. What an API does is in `handlers`; how bytes come in and go out is in
`connections`.
"""
