"""The one exception of this layer."""

from __future__ import annotations


class WireError(ValueError):
    """Bytes that are no message of the expected kind, or values that no message can carry.

    A decoder raises it for anything a peer may have sent; an encoder for a value out of range, a
    null where the version has none, or a version that does not exist.
    """
