"""Copies of the metadata of a stopped cluster in files."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from lakelog.cli.commands.metadata import export_file, import_file
from lakelog.cli.failures import CliError
from lakelog.cli.options import Verbosity
from lakelog.metadata.controller.brokers import plan_cluster_id
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import SystemClock, SystemRandom

_SHOWN = Verbosity()


async def _cluster_id(path: Path, *, create: bool = False) -> str:
    tasks = AsyncioTasks(asyncio.get_running_loop())
    log = MetadataLog(EmbeddedStore(path, SystemClock()), tasks, SystemRandom(), broker_id=3)
    await log.open(create=create)
    cluster_id = await log.submit(lambda image: plan_cluster_id(image, None, "cluster-a"))
    await log.close()
    tasks.close()
    return cluster_id


@pytest.fixture
def file(tmp_path: Path) -> Path:
    asyncio.run(_cluster_id(tmp_path / "metadata.db", create=True))
    return tmp_path / "metadata.db"


def test_an_exported_file_is_imported(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export_file(str(tmp_path / "moved.db"), metadata=f"sqlite:{file}", verbosity=_SHOWN)
    import_file(
        str(tmp_path / "moved.db"), metadata=f"sqlite:{tmp_path / 'new.db'}", verbosity=_SHOWN
    )
    assert asyncio.run(_cluster_id(tmp_path / "new.db")) == "cluster-a"
    text = capsys.readouterr().err
    assert "Exported the metadata of cluster cluster-a (0 topics, 0 brokers, 1 entries)" in text
    assert "Imported" in text


@pytest.mark.parametrize(
    ("target", "file_name", "code", "reason"),
    [
        ("metadata.db", "metadata.db", "LL0708", "exists already"),
        ("new.db", "missing.db", "LL0903", "is missing"),
        ("no/new.db", "metadata.db", "LL0902", "there is no folder"),
    ],
)
def test_a_wrong_place_is_named(
    file: Path, tmp_path: Path, target: str, file_name: str, code: str, reason: str
) -> None:
    with pytest.raises(CliError, match=reason) as caught:
        export_file(
            str(tmp_path / target), metadata=f"sqlite:{tmp_path / file_name}", verbosity=_SHOWN
        )
    assert caught.value.code == code


def test_a_malformed_place_is_named(tmp_path: Path) -> None:
    with pytest.raises(CliError, match="--metadata mysql:x") as caught:
        import_file(str(tmp_path / "x.db"), metadata="mysql:x", verbosity=_SHOWN)
    assert caught.value.code == "LL0902"
