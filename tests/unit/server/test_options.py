from __future__ import annotations

import errno
from pathlib import Path

import pytest

from lakelog.server.options import ListenError, ReadyInfo, StartError, parse_address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", ("127.0.0.1", 9092)),
        ("[::1]:9092", ("::1", 9092)),
        ("broker.example:0", ("broker.example", 0)),
    ],
)
def test_an_address_is_host_and_port(text: str, expected: tuple[str, int]) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize("text", ["", "host", "host:", "host:port", "host:65536", "host:-1"])
def test_anything_else_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(StartError, match="HOST:PORT") as error:
        parse_address(text)
    assert repr(text) in str(error.value)


@pytest.mark.parametrize(("host", "address"), [("::1", "[::1]:9092"), ("a.b", "a.b:9092")])
def test_the_address_of_a_ready_broker_can_be_parsed_again(host: str, address: str) -> None:
    info = ReadyInfo((("PLAINTEXT", host, 9092),), Path("/data"), 1, "cluster")
    assert info.address == address
    assert parse_address(info.address) == (host, 9092)
    assert info.fields["listeners"] == [f"PLAINTEXT://{host}:9092"]


def test_a_port_in_use_is_named() -> None:
    error = ListenError("127.0.0.1:9092", OSError(errno.EADDRINUSE, "Address already in use"))
    assert "127.0.0.1:9092" in str(error)
