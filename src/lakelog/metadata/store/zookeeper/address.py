"""The address of an ensemble: `zookeeper://HOST:PORT[,HOST:PORT...]/CHROOT`."""

from __future__ import annotations

from typing import NamedTuple

from lakelog.metadata.store.zookeeper.security import Security

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
