from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.records.record_text import Header, formatter


@dataclass(frozen=True)
class _Record:
    topic: str = "orders"
    partition: int = 2
    offset: int = 41
    timestamp: int = 1500
    key: bytes | None = b"k"
    value: bytes | None = b"v"
    headers: list[Header] = field(default_factory=list)


@pytest.mark.parametrize(
    ("form", "printed"),
    [
        (r"%t/%p@%o %k %v\n", b"orders/2@41 k v\n"),
        (r"%T %D", b"1500 1970-01-01T00:00:01.500Z"),
        (r"100%% %s\t\x00\\", b"100% v\t\x00\\"),
        ("%h", b"a=1,b="),
        ("%k{hex}|%v{base64}|%s{base64raw}|%h{hex}", b"6b|dg==|dg|a=31,b="),
        ("%v{hex}{hex}", b"76{hex}"),
        ('{"key": "%k", "at": %o}', b'{"key": "k", "at": 41}'),
        ("%v%{hex%}", b"v{hex}"),
        ("%k\udcff", b"k\xff"),
    ],
)
def test_format_strings(form: str, printed: bytes) -> None:
    record = _Record(headers=[("a", b"1"), ("b", None)])
    assert formatter(form)(record) == printed


def test_bytes_are_copied_as_they_are() -> None:
    assert formatter("%k|%v")(_Record(key=None, value=b"\xff\x00\n")) == b"|\xff\x00\n"


@pytest.mark.parametrize(
    "form", ["%x", "plain", "", "%", "%v{rot13}", "%v{}", "%v{hex", "%p{hex}", "%x{hex}", "%v{ }"]
)
def test_a_format_that_cannot_be_meant_is_refused(form: str) -> None:
    with pytest.raises(CliError) as caught:
        formatter(form)
    assert caught.value.code == "LL0902"


def test_the_error_for_an_unknown_modifier_lists_the_existing_ones() -> None:
    with pytest.raises(CliError, match=r"unknown modifier '{hexx}' of '%v'") as caught:
        formatter("%v{hexx}")
    assert "{hex}, {base64}" in caught.value.hint
