"""The errors of rows that cannot become records."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode


class ColumnError(ValueError):
    """A table lacks a column, or has one of a wrong name or type."""


class BadRowError(ValueError):
    """A row that cannot be a record.

    row: its number in the table, from 0. code: the error code that a producer reports.
    """

    def __init__(self, row: int, reason: str, code: ErrorCode) -> None:
        super().__init__(f"row {row}: {reason}")
        self.row = row
        self.reason = reason
        self.code = code

    def __reduce__(self) -> tuple[object, ...]:
        # Spark pickles the errors of its workers.
        return type(self), (self.row, self.reason, self.code)
