"""A task that continues after an unexpected exception, with one log line for as long as it fails.

A task that ended would leave its broker alive and without its work: no copies, no changes of ISRs,
no news of the cluster.
"""

from __future__ import annotations

import logging

from lakelog.base.events import event


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
