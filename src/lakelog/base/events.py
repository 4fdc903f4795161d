"""Names and fields of log lines.

    logger.info("Created topic '%s'", name, extra=event("topic_created", topic=name))

Operators search for the name, so it stays the same when the wording of the message changes, and in
later versions. docs/monitoring.md lists all names.

A `FailingTask` continues after an unexpected exception, with one log line while it fails. A task
that ended would leave its broker alive and without its work: no copies, no changes of ISRs, no news
of the cluster.
"""

from __future__ import annotations

import logging
from typing import Any


def event(name: str, *, code: str | None = None, **fields: object) -> dict[str, Any]:
    """Return the `extra` of a log line.

    Args:
        name: up to four lower-case words with underscores, the noun first: `topic_created`.
        code: an error code of `lakelog explain`.
        fields: the fields of a JSON line besides the message.
    """
    return {"event": name, "code": code, "fields": fields}


class FailingTask:
    """The failures of one task that repeats a step."""

    def __init__(self, logger: logging.Logger, name: str) -> None:
        self._logger = logger
        self._name = name
        self.is_failing = False
        """Whether the last step has failed."""

    def failed(self, error: Exception) -> None:
        """Log an exception that no code expects, unless the step before failed as well."""
        if not self.is_failing:
            self._logger.error(
                "%s failed, and is repeated: %r",
                self._name,
                error,
                exc_info=error,
                extra=event("task_failed", task=self._name),
            )
        self.is_failing = True

    def succeeded(self) -> None:
        """Note a step without an exception."""
        self.is_failing = False

    def __enter__(self) -> None:
        """Begin a step whose unexpected exception ends here."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        if isinstance(error, Exception):
            self.failed(error)
            return True
        if error is None:
            self.succeeded()
        return False
