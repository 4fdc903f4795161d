"""How far the archive's table is in the table of newest records. No I/O.

The progress is the table property `lakelog.latest.<topic id>`, and changes in the commit that
changes the files. The summary of the commit's snapshot has the same text, so a rollback shows. The
text is `{"version": 1, "archive": "<uuid>", "rewinds": 0, "ends": {"0": 1200}, "null_keys":
{"0": 3}, "refresh": "<id>"}`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

_PREFIX = "lakelog.latest."
_VERSION = 1


class CompactedTableError(Exception):
    """The table of newest records cannot be refreshed as it is."""


@dataclass(frozen=True, slots=True)
class CompactedProgress:
    """The archived offsets that the table has.

    archive: the UUID of the archive's table. rewinds: of the archive's progress at that time. ends:
    the first offset of each partition that the table does not have. null_keys: how many records
    below the ends have no key, by partition. refresh: the id of the last refresh.
    """

    archive: str
    rewinds: int = 0
    ends: Mapping[int, int] = field(default_factory=dict)
    null_keys: Mapping[int, int] = field(default_factory=dict)
    refresh: str = ""

    def to_text(self) -> str:
        """Return the value of the table's property."""
        value = {
            "version": _VERSION,
            "archive": self.archive,
            "rewinds": self.rewinds,
            "ends": _with_text_keys(self.ends),
            "null_keys": _with_text_keys(self.null_keys),
            "refresh": self.refresh,
        }
        return json.dumps(value)

    @classmethod
    def from_text(cls, text: str) -> CompactedProgress:
        """Parse the text of a property or a summary. Raises `CompactedTableError`."""
        try:
            value = json.loads(text)
            if value["version"] > _VERSION:
                raise CompactedTableError(
                    f"the progress of the newest records has version {value['version']}, but this "
                    f"lakelog supports up to {_VERSION}: upgrade lakelog"
                )
            ends, null_keys = (_with_number_keys(value[name]) for name in ("ends", "null_keys"))
            archive, rewinds = str(value["archive"]), int(value["rewinds"])
            return cls(archive, rewinds, ends, null_keys, str(value["refresh"]))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CompactedTableError(
                f"the progress of the newest records cannot be read ({type(error).__name__}: "
                f"{error}): {text!r}. Rebuild the table: lakelog table refresh TOPIC --rebuild"
            ) from None


def property_name(topic_id: str) -> str:
    """Return the name of the property with the progress of a topic."""
    return _PREFIX + topic_id


def _with_text_keys(numbers: Mapping[int, int]) -> dict[str, int]:
    return {str(key): number for key, number in sorted(numbers.items())}


def _with_number_keys(numbers: Mapping[str, int]) -> dict[int, int]:
    return {int(key): int(number) for key, number in numbers.items()}
