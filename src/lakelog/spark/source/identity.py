"""The entry of a streaming source about itself, in the offsets that it reports to listeners.

A listener sees the offsets of a source, but not its options. The source therefore adds an entry to
the latest offsets that it reports, which Spark shows and does not store:
`{"orders": {"0": 23}, "@": {"bootstrap": "h:9092", "group": "", "prefix": "team"}}`.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from lakelog.tables.topic.offsets import ABOUT

_MEMBERS = ("bootstrap", "group", "prefix")


@dataclass(frozen=True, slots=True)
class Identity:
    """The brokers of a source, and the group id or the prefix that its options name."""

    bootstrap: str = ""
    group: str = ""
    prefix: str = ""

    def add_to(self, offsets: dict[str, Any] | None) -> dict[str, Any]:
        """Return reported offsets with the entry."""
        return {**(offsets or {}), ABOUT: asdict(self)}

    @classmethod
    def of(cls, reported: str | None) -> Identity | None:
        """Return the entry in a report, or `None` for a report of another kind of source."""
        try:
            value = json.loads(reported or "")
        except ValueError:
            return None
        about = value.get(ABOUT) if isinstance(value, dict) else None
        if not isinstance(about, dict):
            return None
        return cls(**{name: str(about.get(name, "")) for name in _MEMBERS})
