"""Addresses of ensembles, as a command line has them."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.metadata.store.zookeeper.address import (
    EnsembleAddress,
    Security,
    Tls,
    obstacle_of,
    parse_address,
    silence_of,
)


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


def test_the_shown_text_has_no_secret() -> None:
    security = Security("user:secret", Tls(key_password="hidden"), restricts=True)
    assert repr(security) == "Security(digest=True, tls=True, restricts=True)"


def test_without_files_the_authorities_of_the_host_are_required() -> None:
    context = Tls().context()
    assert context.verify_mode is ssl.CERT_REQUIRED and context.check_hostname
    assert not Tls(checks_host=False).context().check_hostname


@pytest.mark.parametrize("tls", [Tls, lambda path: Tls(None, path)])
def test_a_file_that_cannot_be_used_is_named(tls: Callable[[str], Tls], tmp_path: Path) -> None:
    missing = tmp_path / "missing.pem"
    with pytest.raises(ValueError, match=f"{missing} cannot be used: No such file"):
        tls(str(missing)).context()
    (broken := tmp_path / "broken.pem").write_text("no certificate")
    with pytest.raises(ValueError, match=f"{broken} cannot be used"):
        tls(str(broken)).context()


def test_each_obstacle_names_the_server_and_what_to_check() -> None:
    untrusted = ssl.SSLCertVerificationError(1, "failed")
    untrusted.verify_message = "self-signed certificate"
    assert "self-signed certificate" in obstacle_of(untrusted, "zk1:2281")
    assert "secureClientPort" in obstacle_of(ssl.SSLEOFError(8, "EOF occurred"), "zk1:2281")
    assert obstacle_of(ConnectionRefusedError(111, "refused"), "zk1:2281") == "zk1:2281: refused"
    assert "zookeeper.ssl.client.enable" in silence_of("zk1:2181", has_tls=False)
    assert "zookeeper.ssl.keystore.location" in silence_of("zk1:2281", has_tls=True)
