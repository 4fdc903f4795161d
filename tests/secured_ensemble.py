"""A real ZooKeeper ensemble with TLS, and the certificates of its servers and clients."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

from lakelog.cli.local_cluster import ensemble

SECURE_HOST = "127.0.0.2"
"""Of the secure ports, which have the numbers of the plain ones."""
_SECURE = """\
secureClientPort={{port}}
secureClientPortAddress={host}
serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory
ssl.keyStore.location={folder}/server.pem
ssl.keyStore.type=PEM
ssl.trustStore.location={folder}/ca.pem
ssl.trustStore.type=PEM
ssl.clientAuth=need
"""
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


class Certificates:
    """An authority, and certificates that it has issued: files in PEM form with their keys."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.ca = folder / "ca.pem"
        subject = ("-subj", "/CN=authority", "-days", "2")
        self._run("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.pem", *subject)

    def issue(self, name: str, alternative: str) -> Path:
        """Return the file of a new key and its certificate."""
        request = ("-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        self._run("req", *_KEY, *request)
        (self._folder / f"{name}.ext").write_text(f"subjectAltName={alternative}\n")
        issuer = ("-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-days", "2")
        files = ("-in", f"{name}.csr", "-out", f"{name}.crt", "-extfile", f"{name}.ext")
        self._run("x509", "-req", *issuer, *files)
        path = self._folder / f"{name}.pem"
        parts = [(self._folder / f"{name}.{end}").read_text() for end in ("key", "crt")]
        path.write_text("".join(parts))
        return path

    def _run(self, *arguments: str) -> None:
        command = ["openssl", *arguments]
        subprocess.run(command, cwd=self._folder, check=True, capture_output=True)


@contextmanager
def secured(folder: Path) -> Iterator[tuple[ensemble.ZooKeeperEnsemble, Certificates]]:
    """Run an ensemble whose secure ports require certificates of the authority."""
    certificates = Certificates(folder / "certificates")
    certificates.issue("server", f"IP:{SECURE_HOST}")
    with serving(folder) as running:
        yield running, certificates


@contextmanager
def serving(folder: Path) -> Iterator[ensemble.ZooKeeperEnsemble]:
    """Run an ensemble with the certificates in `folder`."""
    secure = _SECURE.format(host=SECURE_HOST, folder=folder / "certificates")
    with (
        mock.patch.object(ensemble, "_SETTINGS", ensemble._SETTINGS + secure),
        ensemble.ZooKeeperEnsemble(folder / "servers") as running,
    ):
        yield running
