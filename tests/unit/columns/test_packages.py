from __future__ import annotations

import json

import pytest

from lakelog.columns.packages import MissingPackageError, optional


def test_a_package_is_returned() -> None:
    assert optional("json", "arrow") is json


def test_a_missing_package_is_an_error_that_names_the_extra() -> None:
    with pytest.raises(
        MissingPackageError, match=r"no_such_pkg is required: pip install '\.\[x\]'"
    ):
        optional("no_such_pkg", "x")
