"""Parametrisations of which `make test` runs one part and `make prove` all."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from _pytest.mark import ParameterSet


def first_of(values: Iterable[object]) -> list[ParameterSet]:
    """Return the first value for every run, and the others with the mark `prove`.

    For values that repeat one proof, such as seeds of one scene: another one rarely shows more.
    """
    return [
        pytest.param(value, marks=[pytest.mark.prove] if number else [])
        for number, value in enumerate(values)
    ]
