"""Errors of the demo's command before it starts anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.spark.demo import __main__ as command
from lakelog.spark.demo.__main__ import demo


def test_a_missing_log_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command, "require_java", lambda: None)
    for log in (tmp_path / "missing.log", tmp_path):
        assert demo(input_=log) == 1
        output, error = capsys.readouterr()
        assert error.split() == ["error", "file", "not", "found:", str(log)]
        assert output == ""


def test_a_missing_java_is_an_error_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert demo() == 1
    output, error = capsys.readouterr()
    assert error.startswith("error ")
    assert "found no Java on the PATH" in error
    assert output == ""
