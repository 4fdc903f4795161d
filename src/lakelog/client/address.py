"""Bootstrap addresses: `host:port`, several with commas, IPv6 hosts in brackets."""

from __future__ import annotations

import ipaddress

from lakelog.base.errors import AddressError

DEFAULT_PORT = 9092
_EXAMPLE = "127.0.0.1:9092"

Address = tuple[str, int]


def parse_bootstrap(text: str) -> list[Address]:
    """Return the addresses of a bootstrap string, at least one. Raises `AddressError`."""
    addresses = [parse_address(part.strip()) for part in text.split(",") if part.strip()]
    if not addresses:
        raise AddressError("no broker address given; expected host:port")
    return addresses


def shown(address: Address) -> str:
    """`host:port` as `parse_address` reads it."""
    host, port = address
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether a host is a loopback address or localhost. No name is resolved."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def parse_address(text: str) -> Address:
    """Parse `host:port`; the default port is 9092. Raises `AddressError`."""
    if "://" in text:
        bare = text.partition("://")[2].rstrip("/")
        raise AddressError(
            f"{text!r} is a URL; an address is host:port, such as {bare or _EXAMPLE}"
        )
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or str(DEFAULT_PORT)
    elif text.count(":") > 1:
        raise AddressError(f"{text!r}: write an IPv6 address in brackets, like [::1]:9092")
    else:
        host, _, port = text.partition(":")
        port = port or str(DEFAULT_PORT)
    if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise AddressError(f"{text!r} is not host:port")
    try:
        host.encode("idna")
    except UnicodeError:
        raise AddressError(f"'{host}' is not a host name") from None
    return host, int(port)
