"""Names and fields of log lines.

    logger.info("Created topic '%s'", name, extra=event("topic_created", topic=name))

The name is what an operator searches for: it never changes with the wording of the message, nor
from version to version. docs/monitoring.md lists all names.
"""

from __future__ import annotations

from typing import Any


def event(name: str, *, code: str | None = None, **fields: object) -> dict[str, Any]:
    """Return the `extra` of a log line.

    Args:
        name: a few words in lower case with underscores, the noun first: `topic_created`.
        code: an error code that `lakelog explain` knows.
        fields: what a JSON line carries beside the message.
    """
    return {"event": name, "code": code, "fields": fields}
