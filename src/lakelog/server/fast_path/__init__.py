"""Requests that repeat the last request, answered without being decoded.

Producers and consumers repeat themselves: of a Produce request only the correlation id and the
batch change, of a Fetch its offset and the session's epoch. Such a request is compared with the
canonical encoding of the connection's last one. If they are equal, the request is known without
decoding, and so is the response except for a few numbers; both are `Template`s. If they differ, or
the response needs anything that no template covers, nothing has changed, and the request is
decoded.

Start with `partition_request`. Memory is bounded: a request that has long names, or was rejected,
is not cached. A cached request calls the same functions as the handler; only decoding, encoding and
the objects between them are left out.
"""
