"""Addresses of ensembles, as a command line has them."""

from __future__ import annotations

import pytest

from lakelog.metadata.store.zookeeper.address import EnsembleAddress, parse_address


@pytest.mark.parametrize(
    ("text", "servers", "root"),
    [
        ("zookeeper://a:1,b:2/kafka", ("a:1", "b:2"), "/kafka"),
        ("zookeeper://a,b:2/x/y/", ("a:2181", "b:2"), "/x/y"),
        ("zookeeper://[::1]:5,[::2]/x", ("[::1]:5", "[::2]:2181"), "/x"),
    ],
)
def test_an_address_names_servers_and_a_chroot(
    text: str, servers: tuple[str, ...], root: str
) -> None:
    assert parse_address(text) == EnsembleAddress(servers, root)


@pytest.mark.parametrize(
    "text",
    [
        "zookeeper://a:1",
        "zookeeper://a:1/",
        "zookeeper://a:1/x//y",
        "zookeeper://a:1/x/../y",
        "zookeeper://a:1/zookeeper/quota",
        "zookeeper:///x",
        "zookeeper://a:1,/x",
        "zookeeper://a:none/x",
        "zookeeper://a:70000/x",
    ],
)
def test_a_malformed_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"expected|not HOST:PORT"):
        parse_address(text)
