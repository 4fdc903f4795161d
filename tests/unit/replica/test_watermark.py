"""The commit rule of one partition."""

from __future__ import annotations

import ast
from pathlib import Path

import lakelog
from lakelog.base.config.log_config import LogConfig
from lakelog.replica.watermark import HighWatermark
from storage_kit import append, make_batch, memory_store

FLUSHED = LogConfig(durability="fsync")


def test_an_append_commits_on_the_page_cache() -> None:
    log = memory_store().create()
    watermark = HighWatermark(log)
    assert not watermark.advance()
    append(log, make_batch(3))
    assert watermark.advance()
    assert watermark.offset == 3


def test_a_flush_commits_with_fsync() -> None:
    log = memory_store(FLUSHED).create()
    watermark = HighWatermark(log)
    append(log, make_batch(3))
    assert not watermark.advance()
    log.flush()
    append(log, make_batch(3))
    assert watermark.advance()
    assert (watermark.offset, log.log_end_offset) == (3, 6)


def test_recovered_records_are_committed() -> None:
    store = memory_store(FLUSHED)
    append(store.create(), make_batch(3))
    assert HighWatermark(store.killed()).offset == 3


def test_it_never_goes_back() -> None:
    log = memory_store().create()
    watermark = HighWatermark(log)
    append(log, make_batch(3))
    watermark.advance()
    log.config = FLUSHED
    watermark.use_config()
    assert not watermark.advance()
    assert watermark.offset == 3


def test_no_other_module_assigns_it() -> None:
    assigning = {
        path.name
        for path in Path(lakelog.__file__).parent.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node).endswith("watermark.offset")
    }
    assert not assigning
