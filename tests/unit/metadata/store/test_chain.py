"""The chain covers everything in an entry, and its mark survives restarts."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lakelog.metadata.store.api import MetadataBatch
from lakelog.metadata.store.chain import Mark, MarkFile, first_link, next_link

BATCH = MetadataBatch(b"w" * 16, 3, 4, b"payload")


@pytest.mark.parametrize(
    ("index", "batch"),
    [
        (8, BATCH),
        (7, BATCH._replace(writer_id=b"v" * 16)),
        (7, BATCH._replace(serial=4)),
        (7, BATCH._replace(controller_epoch=5)),
        (7, BATCH._replace(payload=b"payloae")),
    ],
)
def test_the_chain_depends_on_every_field(index: int, batch: MetadataBatch) -> None:
    chain = first_link(b"l" * 16)
    assert next_link(chain, index, batch) != next_link(chain, 7, BATCH)
    assert next_link(first_link(b"m" * 16), 7, BATCH) != next_link(chain, 7, BATCH)


def test_a_mark_is_read_back_and_replaced(tmp_path: Path) -> None:
    marks = MarkFile(tmp_path / "metadata.mark")
    assert marks.read() is None
    for end in (5, 6):
        mark = Mark(b"l" * 16, end, b"c" * 16)
        asyncio.run(marks.write(mark))
        assert marks.read() == mark
    assert (tmp_path / "metadata.mark").stat().st_size == 48


@pytest.mark.parametrize("position", [0, 20, 39, 41])
def test_a_damaged_mark_is_ignored(
    tmp_path: Path, position: int, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "metadata.mark"
    asyncio.run(MarkFile(path).write(Mark(b"l" * 16, 5, b"c" * 16)))
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)
    assert MarkFile(path).read() is None
    assert "metadata.mark is damaged" in caplog.text
