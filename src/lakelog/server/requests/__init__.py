"""The way of a request from its frame to its handler, and of the response back.

Start with `dispatch`. The APIs are in `handlers`; receiving and sending is in `connections`.
"""
