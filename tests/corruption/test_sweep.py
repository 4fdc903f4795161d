"""Every kind of file damaged in every way: found, never served, never treated as absent.

Each damage (`--corruptions` of them, by `--corruption-seed`) is done to a copy of a folder that a
broker left, after a clean stop or a kill; a broker is started on it, asked for all it has, and
stopped. Each response must be the response for the undamaged folder, or an error. If it is an
error, or a log was truncated, the broker's log names the file. A file without readable content must
have been rebuilt. A folder with a damaged seal counts as not stopped cleanly, and all is recovered.
Damage that a power failure could leave without a trace is not done. Damage to deleted records may
stay in the file.
"""

from __future__ import annotations

import asyncio
import logging
import random
import shutil
from collections import Counter
from functools import partial
from pathlib import Path

import pytest

from corruption.damage import damage
from corruption.folder import copied, kinds_in, make_folders, may_be_lost, seal_of
from corruption.judging import NOT_USED, Report, files_in, judge, rows_in
from corruption.picture import Asking
from lakelog.server.options import StartError


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def ask(folder: Path, damaged: Path) -> Report:
    """Everything about the log of `damaged`, or much about all."""
    report = asyncio.run(_ask(folder, damaged))
    return report._replace(
        files=files_in(folder),
        rows=rows_in(folder / "metadata.db"),
        is_sealed=seal_of(folder).is_intact,
    )


async def _ask(folder: Path, damaged: Path) -> Report:
    lines = _Lines()
    logger = logging.getLogger("lakelog")
    logger.addHandler(lines)
    asking = Asking(folder)
    try:
        await asking.broker.start()
        was_clean = asking.broker.server._folder.directory.clean
        picture = await asking.picture(damaged)
        await asking.broker.stop()
    except StartError as error:
        asking.broker.tasks.close()
        return Report(None, str(error), {}, [], was_clean=False, is_sealed=False)
    finally:
        logger.removeHandler(lines)
    log = "\n".join(lines.lines)
    return Report(picture, log, {}, [], was_clean=was_clean, is_sealed=False)


class Originals:
    """Reports on the undamaged folder, with and without its indexes, by requested log."""

    def __init__(self, folder: Path, end: str, tmp_path: Path) -> None:
        self._folder = folder
        self._end = end
        self._tmp_path = tmp_path
        self._reports: dict[str, list[Report]] = {}

    def of(self, path: Path) -> list[Report]:
        about = path.parent.name
        if about not in self._reports:
            self._reports[about] = [self._ask(path, without) for without in (False, True)]
        return self._reports[about]

    def _ask(self, path: Path, without_indexes: bool) -> Report:
        copy = copied(self._folder, self._tmp_path / "undamaged", self._end)
        if without_indexes:
            for index in copy.glob("*/*index"):
                index.write_bytes(b"")
        report = ask(copy, path)
        assert report.was_clean is (self._end == "stopped")
        assert "folder-seal" not in report.log
        assert "changed by another program" not in report.log
        shutil.rmtree(copy)
        return report


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_folders(tmp_path_factory.mktemp("corruption"))


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_no_damage_goes_unnoticed(
    folders: dict[str, Path], end: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count: int = request.config.getoption("--corruptions")
    rng = random.Random(f"{request.config.getoption('--corruption-seed')} {end}")
    folder, outcomes, violations = folders[end], Counter[tuple[str, str]](), []
    kinds, originals = kinds_in(folder), Originals(folder, end, tmp_path)
    damaged = sorted(kind for kind, paths in kinds.items() if paths and kind not in NOT_USED)
    for number in range(count // 2):
        kind = damaged[number % len(damaged)]
        path = rng.choice(kinds[kind])
        copy = copied(folder, tmp_path / "damaged", end)
        what = damage(copy / path, rng, partial(may_be_lost, folder, path))
        outcome = judge(kind, path, end == "killed", originals.of(path), ask(copy, path))
        outcomes[kind, "!" if outcome.startswith("!") else outcome] += 1
        if outcome.startswith("!"):
            violations.append(f"{path} {what}: {outcome}")
        shutil.rmtree(copy)
    for (kind, outcome), times in sorted(outcomes.items()):
        print(f"\n{end:8} {kind:20} {outcome:20} {times:4}", end="")
    assert not violations, f"{len(violations)}\n" + "\n".join(violations)
