from __future__ import annotations

import io
from pathlib import Path

from lakelog.spark.demo.lines import client_address, read_lines, split_lines, write_generated_log

ODD = b"a b\n\n\r\nx\x00y\n\xff\xfe\r\n" + b"z" * 1_000_000 + b"\nlast"


def test_lines_are_their_exact_bytes() -> None:
    lines = list(read_lines(io.BytesIO(ODD)))

    assert b"\n".join(lines) == ODD
    assert lines[1] == b""
    assert lines[2] == b"\r"
    assert lines[-1] == b"last"


def test_a_final_newline_ends_the_last_line() -> None:
    assert list(read_lines(io.BytesIO(b"a\nb\n"))) == [b"a", b"b"]
    assert list(read_lines(io.BytesIO(b"a\n\n"))) == [b"a", b""]
    assert list(read_lines(io.BytesIO(b""))) == []


def test_two_parts_make_the_whole() -> None:
    first, rest = split_lines(io.BytesIO(b"aaaa\nbbbb\ncccc"), 6)

    assert (list(first), list(rest)) == ([b"aaaa", b"bbbb"], [b"cccc"])


def test_the_key_is_the_first_word() -> None:
    assert client_address(b'10.0.0.1 - - [x] "GET /"') == b"10.0.0.1"
    assert client_address(b"") is None
    assert client_address(b"no-space") is None
    assert client_address(b" leading") is None
    assert client_address(b"z" * 300 + b" x") is None


def test_the_generated_log_is_the_same_each_time(tmp_path: Path) -> None:
    write_generated_log(tmp_path / "a")
    write_generated_log(tmp_path / "b")

    content = (tmp_path / "a").read_bytes()
    assert content == (tmp_path / "b").read_bytes()
    assert content.count(b"\n") == 10_000
