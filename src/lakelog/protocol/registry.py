"""All declared APIs, with the stable version ranges of Apache Kafka 4.4.

It imports every module of this package: only the broker needs that, which serves them all.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules

from lakelog import protocol
from lakelog.protocol.api import Api


def _declared() -> dict[int, Api]:
    """Return the `API` of each module that has one."""
    names = (f"{protocol.__name__}.{module.name}" for module in iter_modules(protocol.__path__))
    declared = (getattr(import_module(name), "API", None) for name in names)
    apis = sorted((api for api in declared if api is not None), key=lambda api: api.key)
    by_key = {api.key: api for api in apis}
    assert len(by_key) == len(apis), "two APIs have the same key"
    return by_key


APIS = _declared()
"""By key, in the order of keys."""
