"""Names and fields of log lines.

    logger.info("Created topic '%s'", name, extra=event("topic_created", topic=name))

Operators search for the name, so it stays the same when the wording of the message changes, and in
later versions. docs/monitoring.md lists all names.
"""

from __future__ import annotations

from typing import Any


def event(name: str, *, code: str | None = None, **fields: object) -> dict[str, Any]:
    """Return the `extra` of a log line.

    Args:
        name: up to four lower-case words with underscores, the noun first: `topic_created`.
        code: an error code of `lakelog explain`.
        fields: the fields of a JSON line besides the message.
    """
    return {"event": name, "code": code, "fields": fields}
