"""The file of dead letters of one task.

Importing this module does not import PyIceberg. `dead_letters.py` has the table.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack, suppress

import pyarrow as pa
import pyarrow.parquet as pq

from lakelog.tables.archive.refusals import Refused
from lakelog.tables.iceberg.columns import field
from lakelog.tables.iceberg.data_file import data_file

LETTER_SCHEMA = pa.schema(
    [
        field(1, "topic", pa.large_string(), nullable=False),
        field(2, "partition", pa.int32(), nullable=False),
        field(3, "offset", pa.int64(), nullable=False),
        field(4, "offsetLast", pa.int64(), nullable=False),
        field(5, "reason", pa.large_string(), nullable=False),
        field(6, "raw", pa.large_binary(), nullable=False),
    ]
)
"""The columns of the table of dead letters, as Arrow declares them; see `dead_letters.py`."""

_GROUP_BYTES = 32 << 20
_GROUP_ROWS = 10_000


class LetterFile:
    """A new file at the URI `path`, created when the first letter is added.

    catalog: PyIceberg's properties, for a remote path. `add` and `close` raise `OSError`.
    """

    def __init__(self, path: str, catalog: Mapping[str, str]) -> None:
        self._path = path
        self._file = data_file(path, catalog)
        self._stack = ExitStack()
        self._writer: pq.ParquetWriter | None = None
        self._group: list[Refused] = []
        self._size = 0

    def add(self, refused: Refused) -> None:
        """Add a letter."""
        if self._writer is None:
            file = self._stack.enter_context(self._file.writing())
            writer = pq.ParquetWriter(file, LETTER_SCHEMA, compression="zstd")
            self._writer = self._stack.enter_context(writer)
        self._group.append(refused)
        self._size += len(refused.raw)
        if self._size >= _GROUP_BYTES or len(self._group) >= _GROUP_ROWS:
            self._flush()

    def close(self) -> str | None:
        """Make the file durable; return its path, or `None` if no letter was added."""
        if self._writer is None:
            return None
        self._flush()
        self._stack.close()
        return self._path

    def remove(self) -> None:
        """Remove the file, if there is one, after an error."""
        if self._writer is not None:
            with suppress(OSError):  # the disk may be full
                self._stack.close()
            self._file.remove()

    def _flush(self) -> None:
        assert self._writer is not None
        columns = {
            "topic": [each.topic for each in self._group],
            "partition": [each.partition for each in self._group],
            "offset": [each.offset for each in self._group],
            "offsetLast": [each.offset_last for each in self._group],
            "reason": [each.reason for each in self._group],
            "raw": [each.raw for each in self._group],
        }
        self._writer.write_table(pa.table(columns, LETTER_SCHEMA))
        self._group, self._size = [], 0
