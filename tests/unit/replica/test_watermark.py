"""The commit rule of one partition."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import lakelog
from lakelog.base.config.log_config import LogConfig
from lakelog.replica.followers import Followers
from lakelog.replica.role import Role
from lakelog.replica.watermark import HighWatermark
from lakelog.storage.log import Log
from storage_kit import append, make_batch, memory_store, sole_leader

FLUSHED = LogConfig(durability="fsync")


def watermark_of(log: Log, role: Role | None = None, known: int = 0) -> HighWatermark:
    followers = Followers()
    watermark = HighWatermark(log, followers, known)
    role = role or sole_leader(3)
    followers.begin(role.followers, 0)
    watermark.use_role(role)
    return watermark


def test_an_append_commits_on_the_page_cache() -> None:
    log = memory_store().create()
    watermark = watermark_of(log)
    assert not watermark.advance()
    append(log, make_batch(3))
    assert watermark.advance()
    assert watermark.offset == 3


def test_a_flush_commits_with_fsync() -> None:
    log = memory_store(FLUSHED).create()
    watermark = watermark_of(log)
    append(log, make_batch(3))
    assert not watermark.advance()
    log.flush()
    append(log, make_batch(3))
    assert watermark.advance()
    assert (watermark.offset, log.log_end_offset) == (3, 6)


def test_a_sole_replica_commits_its_recovered_records() -> None:
    store = memory_store(FLUSHED)
    append(store.create(), make_batch(3))
    watermark = watermark_of(store.killed())
    watermark.advance()
    assert watermark.offset == 3


@pytest.mark.parametrize(
    "role",
    [
        Role(3, leader_id=1, is_leader=True, isr=(1, 2), followers=(2,)),
        Role(3, leader_id=2, is_leader=False, isr=(2,)),
    ],
)
def test_with_other_replicas_only_the_checkpoint_is_known_to_be_committed(role: Role) -> None:
    log = memory_store().create()
    append(log, make_batch(5))
    watermark = watermark_of(log, role, known=2)
    assert not watermark.advance()
    assert (watermark.offset, watermark.written, watermark.by_append) == (2, 5, False)


def test_nothing_is_committed_with_fewer_replicas_in_sync_than_configured() -> None:
    """KIP-966."""
    log = memory_store(LogConfig(min_insync_replicas=2)).create()
    append(log, make_batch(5))
    short = Role(3, 1, is_leader=True, isr=(1,), followers=(2, 3))
    watermark = watermark_of(log, short)
    assert not watermark.advance()
    assert not watermark.by_append
    log.use_config(LogConfig())
    watermark.use_config()
    assert watermark.advance()
    assert watermark.offset == 5


def test_a_topic_with_fewer_replicas_than_it_wants_in_sync_commits_with_all_of_them() -> None:
    log = memory_store(LogConfig(min_insync_replicas=2)).create()
    append(log, make_batch(5))
    assert watermark_of(log).advance()


def test_a_checkpoint_beyond_the_recovered_log_is_cut_with_it() -> None:
    log = memory_store().create()
    append(log, make_batch(5))
    assert watermark_of(log, known=9).offset == 5


def test_a_leader_commits_its_log_once_it_is_alone_in_sync() -> None:
    log = memory_store().create()
    append(log, make_batch(5))
    watermark = watermark_of(log, Role(3, 1, is_leader=True, isr=(1, 2), followers=(2,)), known=2)
    watermark.use_role(sole_leader(3))
    assert watermark.advance()
    assert (watermark.offset, watermark.by_append) == (5, True)


def test_it_never_goes_back() -> None:
    log = memory_store().create()
    watermark = watermark_of(log)
    append(log, make_batch(3))
    watermark.advance()
    log.use_config(FLUSHED)
    watermark.use_config()
    assert not watermark.advance()
    assert watermark.offset == 3


def test_no_other_module_assigns_it() -> None:
    assigning = {
        path.name
        for path in Path(lakelog.__file__).parent.rglob("*.py")
        if "watermark.offset" in path.read_text()  # so that few files are parsed
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and ast.unparse(node).endswith("watermark.offset")
    }
    assert not assigning
