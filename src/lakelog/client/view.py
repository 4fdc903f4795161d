"""The client's immutable view of the cluster, replaced after each Metadata response.

Also addresses of brokers: `host:port`, several with commas, IPv6 hosts in brackets.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakelog.base.errors import AddressError, ErrorCode, error_code
from lakelog.base.uuids import ZERO_UUID
from lakelog.protocol.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

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


NO_LEADER = -1


@dataclass(slots=True, frozen=True)
class Broker:
    """A broker and its advertised address."""

    node_id: int
    host: str
    port: int
    rack: str | None = None

    @property
    def address(self) -> Address:
        """Host and port."""
        return self.host, self.port


@dataclass(slots=True, frozen=True)
class Partition:
    """A partition. `leader` is a node id, or -1 if there is none."""

    partition: int
    leader: int
    leader_epoch: int = -1
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()


@dataclass(slots=True, frozen=True)
class Topic:
    """A topic. `topic_id` has 16 bytes, all zero from a broker without topic ids."""

    name: str
    topic_id: bytes
    partitions: tuple[Partition, ...]
    is_internal: bool = False

    @property
    def has_id(self) -> bool:
        """Whether the broker reported a topic id (KIP-516)."""
        return self.topic_id != ZERO_UUID


@dataclass(slots=True, frozen=True)
class ClusterView:
    """Brokers and topics. `errors` has the codes of requested topics without a description."""

    cluster_id: str = ""
    controller_id: int = -1
    brokers: Mapping[int, Broker] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    errors: Mapping[str, ErrorCode] = field(default_factory=dict)

    def leader(self, topic: str, partition: int) -> Broker | None:
        """Return the leader of a partition, or `None` if it is unknown.

        The partition may be unknown or without a leader at present.
        """
        topic_view = self.topics.get(topic)
        if topic_view is None or not 0 <= partition < len(topic_view.partitions):
            return None
        return self.brokers.get(topic_view.partitions[partition].leader)

    def after(self, response: MetadataResponse, *, complete: bool) -> ClusterView:
        """Return this view updated by `response`. complete: the response describes all topics."""
        topics = {} if complete else dict(self.topics)
        errors = {} if complete else dict(self.errors)
        for row in response.topics:
            name = row.name or ""
            topics.pop(name, None)
            errors.pop(name, None)
            if row.error_code:
                errors[name] = error_code(row.error_code)
            else:
                topics[name] = _topic(row)
        brokers = {
            row.node_id: Broker(row.node_id, row.host, row.port, row.rack)
            for row in response.brokers
        }
        return ClusterView(
            response.cluster_id or "", response.controller_id, brokers, topics, errors
        )


def _topic(row: MetadataResponseTopic) -> Topic:
    ordered = sorted(row.partitions, key=lambda partition: partition.partition_index)
    return Topic(row.name or "", row.topic_id, tuple(map(_partition, ordered)), row.is_internal)


def _partition(row: MetadataResponsePartition) -> Partition:
    return Partition(
        row.partition_index,
        row.leader_id,
        row.leader_epoch,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
    )
