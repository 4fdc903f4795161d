from __future__ import annotations

import pytest

from lakelog.base.endpoint import Endpoint, parse_endpoint


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Endpoint("PLAINTEXT", "127.0.0.1", 9092)),
        (" plain-1://:0 ", Endpoint("PLAIN-1", "", 0)),
        ("A://[::1]:65535", Endpoint("A", "::1", 65535)),
        ("A://[fe80::1%2]:1", Endpoint("A", "fe80::1%2", 1)),
    ],
)
def test_an_endpoint_is_parsed(text: str, endpoint: Endpoint) -> None:
    assert parse_endpoint(text) == endpoint


@pytest.mark.parametrize(
    "text", ["", "host:9092", "A://host", "A://host:", "A://::1:9092", "A://h:65536", "A b://h:1"]
)
def test_malformed_text_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="NAME://HOST:PORT"):
        parse_endpoint(text)
