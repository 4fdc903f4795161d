from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from lakelog.columns.packages import CompiledOrPlain, MissingPackageError, optional


def made(work: str, load: Callable[[bool], object]) -> object:
    return CompiledOrPlain(work, load).choose(True, 1, with_headers=False)


def test_a_package_is_returned() -> None:
    assert optional("json", "arrow") is json


def test_a_missing_package_is_an_error_that_names_the_extra() -> None:
    with pytest.raises(
        MissingPackageError, match=r"no_such_pkg is required: pip install '\.\[x\]'"
    ):
        optional("no_such_pkg", "x")


def test_a_failure_is_one_line_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: bool) -> None:
        raise OSError("no space")

    assert made("Decoding", fail) is None
    [line] = caplog.records
    assert line.getMessage() == "Decoding in plain Python, the compiled loop failed: " + repr(
        OSError("no space")
    )
    assert vars(line)["event"] == "columns_plain"


def test_a_missing_package_names_the_extra(caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: bool) -> None:
        raise ModuleNotFoundError("No module named 'numba'")

    assert made("Encoding", fail) is None
    assert caplog.messages == [
        "Encoding in plain Python, which is several times slower: "
        "No module named 'numba' (pip install '.[fast]')"
    ]


def test_an_implementation_that_loads_is_returned(caplog: pytest.LogCaptureFixture) -> None:
    assert made("Encoding", lambda _: 7) == 7
    assert caplog.records == []
