"""Jobs of a helper process and its answers, as values and as lines of JSON."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Source:
    """A segment as it was when the job was made. Its records end before `end_offset`."""

    base_offset: int
    end_offset: int
    size: int
    modified_ms: int


@dataclass(frozen=True, slots=True)
class LastRecord:
    """The last batch of a producer: the offset of its last record, -1 for a marker."""

    offset: int
    epoch: int


@dataclass(frozen=True, slots=True)
class CompactionJob:
    """A job for one log. `segments` are cleaned; `later` ones are only searched for markers."""

    folder: Path
    segments: tuple[Source, ...]
    later: tuple[Source, ...]
    first_dirty_offset: int
    now_ms: int
    delete_retention_ms: int
    segment_bytes: int
    segment_index_bytes: int
    index_interval_bytes: int
    producers: dict[int, LastRecord]
    map_bytes: int
    map_load_factor: float
    read_bytes: int
    bytes_per_second: float
    """Of reads and writes together; 0 is no limit."""

    def encode(self) -> bytes:
        """Return the job as one line of JSON, for a helper process."""
        values = asdict(self)
        values["folder"] = str(self.folder)
        return json.dumps(values).encode()

    @classmethod
    def decode(cls, line: bytes) -> CompactionJob:
        """Return the job in a line of `encode`."""
        values: dict[str, Any] = json.loads(line)
        values["folder"] = Path(values["folder"])
        for name in ("segments", "later"):
            values[name] = tuple(Source(**entry) for entry in values[name])
        values["producers"] = {
            int(producer): LastRecord(**last) for producer, last in values["producers"].items()
        }
        return cls(**values)


@dataclass(slots=True)
class CompactionStats:
    """Bytes and records of one job, before and after."""

    bytes_read: int = 0
    bytes_written: int = 0
    records_read: int = 0
    records_written: int = 0
    unreadable_batches: int = 0
    """Kept as they are: their checksum is right, but their records cannot be decoded."""


@dataclass(frozen=True, slots=True)
class CleanedGroup:
    """A segment, written under `.cleaned` names, that replaces the segments at `sources`."""

    base_offset: int
    end_offset: int
    size: int
    sources: tuple[int, ...]
    suffixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CompactionDone:
    """The end of a job: all records before `end_offset` were compared by key."""

    end_offset: int
    stats: CompactionStats = field(default_factory=CompactionStats)


@dataclass(frozen=True, slots=True)
class CompactionFailed:
    """The end of a failed job.

    `kind` is "corrupt", "missing" (a segment was deleted meanwhile), "shortage" (of space or
    descriptors) or "io".
    """

    kind: str
    reason: str


Answer = CleanedGroup | CompactionDone | CompactionFailed
_KINDS: dict[str, type[Any]] = {
    "group": CleanedGroup,
    "done": CompactionDone,
    "failed": CompactionFailed,
}


def encode_answer(answer: Answer) -> bytes:
    """Return an answer of the helper as one line of JSON."""
    name = next(name for name, kind in _KINDS.items() if isinstance(answer, kind))
    return json.dumps({"kind": name, "answer": asdict(answer)}).encode()


def decode_answer(line: bytes) -> Answer:
    """Return an answer. Raises `ValueError`, `KeyError` or `TypeError` for an invalid line."""
    outer = json.loads(line)
    values = outer["answer"]
    match outer["kind"]:
        case "group":
            values["sources"] = tuple(values["sources"])
            values["suffixes"] = tuple(values["suffixes"])
            return CleanedGroup(**values)
        case "done":
            return CompactionDone(values["end_offset"], CompactionStats(**values["stats"]))
        case _:
            return CompactionFailed(**values)
