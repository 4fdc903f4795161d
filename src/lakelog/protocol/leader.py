"""The current leader of a partition, in responses of a broker that does not lead it (KIP-951)."""

from __future__ import annotations

from lakelog.wire.schema import Struct, int32, string


class LeaderIdAndEpoch(Struct):
    """The current leader of the partition; -1 when it is unknown."""

    leader_id: int = int32(default=-1)
    leader_epoch: int = int32(default=-1)


class NodeEndpoint(Struct):
    """The address of a broker in `current_leader`."""

    node_id: int = int32()
    host: str = string()
    port: int = int32()
    rack: str | None = string(nullable="0+", default=None)
