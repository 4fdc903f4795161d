"""Requests that repeat the one before, answered without being decoded.

Producers and consumers say the same again and again: of a produce request only the correlation id
and the batch change, of a fetch its offset and the session's epoch. Such a request is compared with
the canonical encoding of what the connection asked before. If it is that, what it asks for is known
and so is the answer but for a few numbers; both are `Template`s. If it is not, or the answer is not
to be had at once, nothing has happened, and the request goes the ordinary way.

What is learnt is bounded: a request whose names are long, or that was refused, is not worth it.

A repeat does what the ordinary way does, by the same functions. Only decoding, encoding and the
objects between them are left out.
"""
