"""The one exception of this layer."""

from __future__ import annotations


class WireError(ValueError):
    """Malformed bytes, or values that a message cannot carry.

    A decoder raises it for any malformed input of a peer. An encoder raises it for a value out of
    range, for a null that the version does not allow, and for an unknown version.
    """
