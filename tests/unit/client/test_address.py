from __future__ import annotations

import pytest

from lakelog.base.errors import AddressError
from lakelog.client.address import parse_address, parse_bootstrap, shown


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("localhost", [("localhost", 9092)]),
        ("a:1, b:65535,", [("a", 1), ("b", 65535)]),
        ("[::1]:9093,[fe80::1]", [("::1", 9093), ("fe80::1", 9092)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert parse_bootstrap(text) == addresses


@pytest.mark.parametrize(
    "text", ["", " , ", ":1", "a:b", "a:0", "a:65536", "::1", "a:-1", "a..b", "\udcff:1"]
)
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_bootstrap(text)


@pytest.mark.parametrize("text", ["a:1", "127.0.0.1:9092", "[::1]:9093"])
def test_an_address_is_shown_as_it_is_given(text: str) -> None:
    assert shown(parse_address(text)) == text


@pytest.mark.parametrize("scheme", ["http", "PLAINTEXT", "zookeeper"])
def test_a_url_is_refused_with_the_address_in_it(scheme: str) -> None:
    with pytest.raises(AddressError, match=r"is a URL; an address is host:port, such as a:1$"):
        parse_bootstrap(f"b:2,{scheme}://a:1/")
