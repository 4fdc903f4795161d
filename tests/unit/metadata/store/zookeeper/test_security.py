"""Credentials, certificates, and the reasons of failed connections."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

from lakelog.metadata.store.zookeeper.security import Security, Tls, obstacle_of, silence_of


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
