"""Garbage collection in Spark's workers."""

from __future__ import annotations

import gc
import sys

_WORKER = "pyspark.daemon"
"""The program of the processes that collect garbage after each task."""


def is_worker() -> bool:
    """Return whether this process runs one task after another."""
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return spec is not None and spec.name == _WORKER


class _Exempted:
    """The number of modules that were loaded when objects were last exempted."""

    modules = 0


def exempt_modules() -> None:
    """Exempt the objects of all loaded modules from garbage collection, in a worker.

    Otherwise the collection after each task looks at every object of Numba and pyarrow, which takes
    as long as decoding a million records. Only the first task after an import has work to do here.
    """
    if not is_worker() or len(sys.modules) == _Exempted.modules:
        return
    gc.collect()
    gc.freeze()
    _Exempted.modules = len(sys.modules)
