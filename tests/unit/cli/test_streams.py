"""Standard streams of a process, however it was started."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from lakelog.cli import streams
from lakelog.cli.failures import CliError


def run(code: str, stdout: int | None = None) -> subprocess.CompletedProcess[bytes]:
    program = f"import sys\nfrom lakelog.cli.streams import prepare_streams\n{code}"
    return subprocess.run(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONIOENCODING": "ascii", "LC_ALL": "C"},
        timeout=60,
        check=False,
        stdout=stdout,
    )


def test_output_is_utf_8_in_any_locale() -> None:
    code = "prepare_streams(); print('grüße \\udcff')"
    assert run(code, stdout=subprocess.PIPE).stdout == "grüße \\udcff\n".encode()


def test_closed_streams_swallow_output_and_their_numbers_are_not_used_again() -> None:
    code = """
import os
for number in (0, 1, 2): os.close(number)
sys.stdin = sys.stdout = sys.stderr = None
prepare_streams()
print("lost"); print("lost", file=sys.stderr)
sys.stderr.flush()
fd = os.open("/", os.O_RDONLY)
os._exit(0 if fd > 2 else 1)
"""
    assert run(code).returncode == 0


def test_a_full_device_is_an_error_and_a_broken_pipe_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    full = streams._Stdout(os.open("/dev/full", os.O_WRONLY), "w")
    with pytest.raises(CliError, match="standard output: No space left on device"):
        full.write(b"x")
    full.close()
    reader, writer = os.pipe()
    os.close(reader)
    stdout = streams._Stdout(writer, "w")
    with pytest.raises(BrokenPipeError):
        stdout.write(b"x")
    monkeypatch.setattr(streams, "_STDOUT", writer)
    with pytest.raises(BrokenPipeError):
        streams.check_stdout()
    stdout.close()


def test_a_pipe_with_a_reader_is_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    reader, writer = os.pipe()
    monkeypatch.setattr(streams, "_STDOUT", writer)
    streams.check_stdout()
    os.close(reader)
    os.close(writer)
