"""Operations of clients and the responses that they received, read from lines of JSON.

The module does no I/O. Each line is an object with `at` (nanoseconds of the machine's monotonic
clock), `process` (a client and its life, such as `ledger.0:2`), `f` and `type`. An operation with
an invocation has a number `op`; a later line of the same process and number completes it:

    f         type     further keys
    send      invoke   records: [[partition, value]], one record
    pulse     invoke   records: [[partition, value]], one record that no client reads
    txn       invoke   records; optional: inputs: [[partition, offset]] of the records,
                       group and commits: {partition: offset}
    commit    invoke   group, commits: {partition: offset}
    committed invoke   group
              ending   the client is about to call commit, not abort
              ok       offsets: [offset or null] of the records; commits of `committed`
              fail     the operation has had no effect; offsets
              info     the outcome is unknown
    assign    ok       reader, group or null, isolation, positions: {partition: offset}
    poll      ok       reader, records: [[partition, offset, value]]
    error     ok       text: a response that must never occur
    shown     invoke   whether a surface shows health; its name is the process
              ok       it does
              fail     it does not, or nothing answers
    pace      ok       factor: how much slower the machine is than an idle one
    fault     ok       text; optional: minor, whether a majority works on; blind, whether clients
                       are cut off a part of the cluster
    healed    ok       roles: process names before the dot, and partitions, that must make progress
    complete  ok       the last reads have reached the end of all partitions

A partition is named `topic-0`. An operation without a completion has an unknown outcome, because
its client was killed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

OK, FAIL, INFO = "ok", "fail", "info"
COMMITTED = "read_committed"


class Position(NamedTuple):
    """A position in a partition."""

    partition: str
    offset: int


@dataclass(slots=True)
class Operation:
    """An invocation of a client with its outcome. Times are in nanoseconds."""

    process: str
    number: int
    kind: str
    invoked: int
    records: list[tuple[str, str]]
    """Partition and value of each record that it sends."""
    inputs: list[Position]
    """The record from which each sent record was made; empty if there are none."""
    group: str | None
    commits: dict[str, int]
    outcome: str = INFO
    completed: int | None = None
    ending: int | None = None
    """When the client called commit, or None."""
    offsets: list[int | None] = field(default_factory=list)

    @property
    def roles(self) -> tuple[str, ...]:
        """The role of its process and, of a send, its partition."""
        partitions = [partition for partition, _ in self.records] if self.kind == "send" else []
        return self.process.partition(".")[0], *partitions

    @property
    def may_be_visible(self) -> bool:
        """Whether a consumer of committed records may ever receive its records."""
        return self.outcome != FAIL and (self.kind == "send" or self.ending is not None)

    def delivered(self) -> Iterable[tuple[Position, str]]:
        """Yield the place and value of each record with a delivery report."""
        for (partition, value), offset in zip(self.records, self.offsets, strict=False):
            if offset is not None:
                yield Position(partition, offset), value


class Received(NamedTuple):
    """A record that a consumer received, and when it noted that."""

    place: Position
    value: str
    at: int


@dataclass(slots=True)
class Reader:
    """A consumer between two assignments."""

    name: str
    group: str | None
    is_committed: bool
    starts: dict[str, int]
    records: list[Received] = field(default_factory=list)

    @property
    def role(self) -> str:
        return self.name.partition(".")[0]


class Healed(NamedTuple):
    """From this time on, each role must make progress."""

    at: int
    roles: list[str]


@dataclass
class History:
    """The operations of all clients, in the order of their invocations."""

    operations: list[Operation] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)
    healed: list[Healed] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    minor_faults: list[tuple[int, str]] = field(default_factory=list)
    """Time and text of each fault that left a majority of brokers and of the store at work."""
    major_faults: list[int] = field(default_factory=list)
    """Time of each other fault."""
    blind: list[tuple[int, int]] = field(default_factory=list)
    """Begin and healing of each fault that cut clients off a part of the cluster."""
    paces: list[tuple[int, float]] = field(default_factory=list)
    """How much slower the machine was than an idle one, by time."""
    errors: list[str] = field(default_factory=list)
    polls: int = 0
    is_complete: bool = False
    """Whether the last reads have reached the end of all partitions."""

    def of_kind(self, *kinds: str) -> list[Operation]:
        return [each for each in self.operations if each.kind in kinds]

    @property
    def count(self) -> int:
        """Operations of clients, where a transaction is one."""
        return len(self.operations) + self.polls


def parse(lines: Iterable[str | bytes]) -> History:
    """Return the history of lines in any order of their processes. Raises `ValueError`."""
    parser = _Parser()
    for line in sorted((json.loads(line) for line in lines), key=lambda line: int(line["at"])):
        parser.take(line)
    return parser.history


class _Parser:
    def __init__(self) -> None:
        self.history = History()
        self._open: dict[tuple[str, int], Operation] = {}
        self._readers: dict[str, Reader] = {}
        self._blind_since: int | None = None

    def take(self, line: dict[str, Any]) -> None:
        if line["type"] == "invoke":
            self._invoke(line)
        elif "op" in line:
            self._complete(line)
        else:
            self._single(line)

    def _invoke(self, line: dict[str, Any]) -> None:
        operation = Operation(
            line["process"],
            line["op"],
            line["f"],
            line["at"],
            [(partition, value) for partition, value in line.get("records", ())],
            [Position(*position) for position in line.get("inputs", ())],
            line.get("group"),
            line.get("commits", {}),
        )
        key = operation.process, operation.number
        if key in self._open:
            raise ValueError(f"{operation.process} invoked operation {operation.number} twice")
        self._open[key] = operation
        self.history.operations.append(operation)

    def _complete(self, line: dict[str, Any]) -> None:
        operation = self._open[line["process"], line["op"]]
        if line["type"] == "ending":
            operation.ending = line["at"]
            return
        operation.outcome, operation.completed = line["type"], line["at"]
        operation.offsets = line.get("offsets", [])
        operation.commits = line.get("commits", operation.commits)

    def _single(self, line: dict[str, Any]) -> None:
        history = self.history
        match line["f"]:
            case "assign":
                is_committed = line["isolation"] == COMMITTED
                reader = Reader(line["reader"], line["group"], is_committed, line["positions"])
                self._readers[reader.name] = reader
                history.readers.append(reader)
            case "poll":
                records = self._readers[line["reader"]].records
                for partition, offset, value in line["records"]:
                    records.append(Received(Position(partition, offset), value, line["at"]))
                history.polls += 1
            case "error":
                history.errors.append(f"{line['process']}: {line['text']}")
            case "fault":
                self._begin_fault(line)
            case "pace":
                history.paces.append((line["at"], line["factor"]))
            case "healed":
                self._end_blindness(line["at"])
                history.healed.append(Healed(line["at"], line["roles"]))
            case "complete":
                history.is_complete = True
            case other:
                raise ValueError(f"{line['process']} wrote {other!r}")

    def _begin_fault(self, line: dict[str, Any]) -> None:
        self.history.faults.append(line["text"])
        if line.get("minor", False):
            self.history.minor_faults.append((line["at"], line["text"]))
        else:
            self.history.major_faults.append(line["at"])
        if line.get("blind", False):
            self._blind_since = line["at"]

    def _end_blindness(self, at: int) -> None:
        if self._blind_since is not None:
            self.history.blind.append((self._blind_since, at))
            self._blind_since = None
