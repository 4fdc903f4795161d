"""The address of an ensemble, and how a broker and the ensemble prove themselves to each other.

    zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT

ZooKeeper accepts any digest; only the ACL of a node rejects a wrong one. TLS proves the servers by
their certificates, and the broker by its own if it has one.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import NamedTuple


class Tls(NamedTuple):
    """Files in PEM form; without `ca_file` the authorities of this host are trusted.

    certificate_file: the private key and the certificates of this broker, if it has some.
    checks_host: whether a server's certificate must have its name or address.
    """

    ca_file: str | None = None
    certificate_file: str | None = None
    key_password: str | None = None
    checks_host: bool = True

    def context(self) -> ssl.SSLContext:
        """Return the settings of each connection.

        Raises `ValueError` for a file that cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = self.checks_host
        if self.ca_file is None:
            context.load_default_certs()
        else:
            _load(self.ca_file, lambda: context.load_verify_locations(self.ca_file))
        if self.certificate_file is not None:
            path, password = self.certificate_file, self.key_password or ""
            _load(path, lambda: context.load_cert_chain(path, password=lambda: password))
        return context


class Security(NamedTuple):
    """The means of one broker; by default none.

    digest: USER:PASSWORD. restricts: whether new nodes are accessible to their creator alone.
    """

    digest: str | None = None
    tls: Tls | None = None
    restricts: bool = False

    def __repr__(self) -> str:
        """Return a text without secrets."""
        digest, tls = self.digest is not None, self.tls is not None
        return f"Security({digest=}, {tls=}, restricts={self.restricts})"


def obstacle_of(error: OSError, host: str) -> str:
    """Return why a connection to a server failed, and what to do."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return (
            f"the certificate of {host} is not accepted: {error.verify_message}; "
            "check zookeeper.ssl.truststore.location and the names in the certificate"
        )
    if isinstance(error, ssl.SSLError | ConnectionResetError):
        return (
            f"{host} speaks no TLS or ends it ({error.strerror or error}); check that its port is "
            "secureClientPort"
        )
    if isinstance(error, TimeoutError):
        return f"{host} does not answer in time"
    return f"{host}: {error.strerror or error}"


def silence_of(host: str, *, has_tls: bool) -> str:
    """Return why a server may have ended a connection before a session began."""
    reason = (
        "it has no quorum, or requires a client certificate (zookeeper.ssl.keystore.location) that "
        "it trusts"
        if has_tls
        else "it has no quorum, or its port is for TLS (zookeeper.ssl.client.enable)"
    )
    return f"{host} began no session: {reason}"


def _load(path: str, load: Callable[[], object]) -> None:
    try:
        load()
    except OSError as error:  # an SSLError, too
        reason = error.strerror or str(error)
        raise ValueError(f"{path} cannot be used: {reason}") from None


SCHEME = "zookeeper://"
_PORT = 2181
_PORT_MAX = 65_535


class EnsembleAddress(NamedTuple):
    """The servers as HOST:PORT, and the path of the node that holds the log."""

    servers: tuple[str, ...]
    root: str
    security: Security = Security()


def parse_address(text: str) -> EnsembleAddress:
    """Return the address in a `zookeeper://` URL; 2181 is the default port.

    Raises `ValueError` for a malformed address. A chroot is required: the root of an ensemble
    belongs to all its users.
    """
    assert text.startswith(SCHEME)
    servers, slash, chroot = text.removeprefix(SCHEME).partition("/")
    names = chroot.rstrip("/").split("/")
    if not slash or not all(names) or {".", "..", "zookeeper"} & set(names):
        raise ValueError(f"{text} has no valid chroot; expected zookeeper://HOST:PORT/CHROOT")
    return EnsembleAddress(
        tuple(_server(server, text) for server in servers.split(",")), "/" + "/".join(names)
    )


def _server(server: str, text: str) -> str:
    host, colon, port = server.rpartition(":")
    if not colon or server.endswith("]"):
        host, port = server, str(_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise ValueError(f"{server!r} in {text} is not HOST:PORT")
    return f"{host}:{port}"
