from __future__ import annotations

import json

import pytest

from lakelog.columns.packages import MissingPackageError, load_compiled, optional


def test_a_package_is_returned() -> None:
    assert optional("json", "arrow") is json


def test_a_missing_package_is_an_error_that_names_the_extra() -> None:
    with pytest.raises(
        MissingPackageError, match=r"no_such_pkg is required: pip install '\.\[x\]'"
    ):
        optional("no_such_pkg", "x")


def test_a_failure_is_one_line_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise OSError("no space")

    assert load_compiled("Decoding", fail) is None
    [line] = caplog.records
    assert line.getMessage() == "Decoding in plain Python, the compiled loop failed: " + repr(
        OSError("no space")
    )
    assert vars(line)["event"] == "columns_plain"


def test_a_missing_package_names_the_extra(caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> None:
        raise ModuleNotFoundError("No module named 'numba'")

    assert load_compiled("Encoding", fail) is None
    assert caplog.messages == [
        "Encoding in plain Python, which is several times slower: "
        "No module named 'numba' (pip install '.[fast]')"
    ]


def test_an_implementation_that_loads_is_returned(caplog: pytest.LogCaptureFixture) -> None:
    assert load_compiled("Encoding", lambda: 7) == 7
    assert caplog.records == []
