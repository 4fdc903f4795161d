"""The number of array elements in a message.

Arrays whose elements contain no arrays are not iterated over.
"""

from __future__ import annotations

from functools import cache

from lakelog.wire.schema import Struct

_Plan = tuple[tuple[str, bool], ...]


def count_elements(message: Struct) -> int:
    """Return the number of elements of all arrays together, as the decoder counts them.

    The limits are `MAX_REQUEST_ELEMENTS` and `MAX_RESPONSE_ELEMENTS`; see docs/limits.md.
    """
    count = 0
    for name, has_arrays in _plan(type(message)):
        value = getattr(message, name)
        if isinstance(value, Struct):
            count += count_elements(value)
        elif value:
            count += len(value)
            if has_arrays:
                count += sum(map(count_elements, value))
    return count


@cache
def _plan(kind: type[Struct]) -> _Plan:
    """Return the fields that are or contain arrays, and whether their elements contain arrays."""
    plan = []
    for field in kind.__fields__:
        has_arrays = field.struct is not None and bool(_plan(field.struct))
        if field.is_array or has_arrays:
            plan.append((field.name, has_arrays))
    return tuple(plan)
