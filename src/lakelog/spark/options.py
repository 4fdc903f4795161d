"""Options of a query, in the names of Spark's official Kafka connector.

Spark passes option names in lower case, so they are compared in lower case; errors use the
documented spelling. An option that would change which records are read is rejected unless it is
supported. Options that only tune the official connector's client are accepted and ignored
(`connector_options.py`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from lakelog.spark.connector_options import WITHOUT_EFFECT, refusal
from lakelog.tables.topic.errors import OptionError

T = TypeVar("T")

_UNITS_S = {
    **{"": 0.001, "us": 1e-6, "ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0},
    **{"h": 3600.0, "d": 86400.0},
}
_DURATION = re.compile(rf"(\d{{1,15}})\s*({'|'.join(_UNITS_S)})")
_SPARK_OWN = frozenset({"checkpointlocation", "queryname"})


@dataclass(slots=True)
class OptionReader:
    """Typed access to a mapping of options, with errors that name the option."""

    values: Mapping[str, str]
    names: tuple[str, ...]
    _by_name: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self._by_name = {name.lower(): value for name, value in self.values.items()}
        known = {name.lower(): name for name in self.names}
        for name, value in self._by_name.items():
            if name in known or name in _SPARK_OWN:
                continue
            reason = refusal(name, value)
            if reason:
                raise OptionError(f"option {name!r} is not supported: {reason}")
            if name not in WITHOUT_EFFECT:
                raise OptionError(_unknown(name, known))

    def text(self, name: str, default: str = "") -> str:
        return self._by_name.get(name.lower(), default).strip()

    def has(self, name: str) -> bool:
        return name.lower() in self._by_name

    def required(self, name: str) -> str:
        if not self.text(name):
            raise OptionError(f"option {name!r} is required")
        return self.text(name)

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name).lower() or str(default).lower()
        if text not in ("true", "false"):
            raise OptionError(f"option {name!r} must be true or false, not {text!r}")
        return text == "true"

    def number(self, name: str, *, minimum: int) -> int | None:
        if not self.has(name):
            return None
        try:
            value = int(self.text(name))
        except ValueError:
            value = minimum - 1
        if value < minimum:
            raise OptionError(
                f"option {name!r} must be a whole number of at least {minimum}, "
                f"not {self.text(name)!r}"
            )
        return value

    def seconds(self, name: str, default_s: float) -> float:
        """Return a duration such as `500ms`, `90s`, `15m` or `1h`; without a unit it is in ms."""
        text = self.text(name)
        if not text:
            return default_s
        found = _DURATION.fullmatch(text.lower())
        if found is None:
            raise OptionError(
                f"option {name!r} must be a duration such as 500ms, 90s or 15m, not {text!r}"
            )
        return int(found[1]) * _UNITS_S[found[2]]


def _unknown(name: str, known: Mapping[str, str]) -> str:
    if name == "path":
        return "load() and start() accept no path: select topics with the connector's options"
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    hint = f"; did you mean {known[close[0]]!r}?" if close else ""
    return f"unknown option {name!r} (Spark passes names in lower case){hint}"


def parsed(parse: Callable[[str], T], name: str, text: str) -> T:
    try:
        return parse(text)
    except ValueError as error:
        raise OptionError(f"option {name!r}: {error}") from None
