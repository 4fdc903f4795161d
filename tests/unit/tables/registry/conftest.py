from __future__ import annotations

from collections.abc import Iterator

import pytest

from schema_registry import Registry, schema_registry


@pytest.fixture
def registry() -> Iterator[Registry]:
    """A schema registry that answers over HTTP."""
    with schema_registry() as running:
        yield running
