"""`lakelog table sync` as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from broker_process import LAKELOG, eventually
from spark.topics import MakeTopic, produce

pytestmark = [pytest.mark.spark]

TIMEOUT_S = 240


class Sync:
    """A run of the command, in a process group of its own as a terminal would have it."""

    def __init__(self, bootstrap: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [LAKELOG, "table", "sync", *words, "-b", bootstrap],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env=os.environ | {"NO_COLOR": "1"},
        )

    def end(self) -> tuple[int, str, str]:
        """Exit status, standard output, standard error."""
        try:
            out, err = self._process.communicate(timeout=TIMEOUT_S)
        finally:
            self._process.kill()
        return self._process.returncode, out, err

    def result(self) -> Any:
        status, out, err = self.end()
        assert status == 0, err
        assert "Traceback" not in err
        return json.loads(out)

    def first_note(self) -> str:
        assert self._process.stderr is not None
        return self._process.stderr.readline()

    def terminate(self) -> None:
        self._process.terminate()

    def interrupt(self) -> None:
        """What ^C does: every process of the group is told."""
        os.killpg(self._process.pid, signal.SIGINT)


def test_a_table_is_synced_from_the_command_line(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    where = (topic, "--warehouse", str(tmp_path))

    status, out, err = Sync(bootstrap, *where).end()
    assert (status, err) == (0, f"{topic}: 6 records in the table\n")
    facts = dict(line.split("  ", 1) for line in out.splitlines()[:6] if "  " in line)
    assert Path(facts["metadata path"].strip().removeprefix("file://")).is_file()
    for reader in ("duckdb", "pyiceberg", "spark"):
        assert f"Read it with {reader}:" in out

    follow = Sync(bootstrap, *where, "--follow", "--every", "1s", "-f", "json")
    produce(bootstrap, topic, range(6, 7))
    assert follow.first_note() == f"{topic}: 7 records in the table\n"
    follow.terminate()
    followed = follow.result()
    assert (followed["rows_added"], followed["rows_total"]) == (1, 7)
    assert followed["metadata_path"].removeprefix("file://") in followed["snippets"]["duckdb"]

    interrupted = Sync(bootstrap, *where, "--follow", "--every", "1s", "-f", "json")
    again = Sync(bootstrap, *where, "-f", "json").result()
    eventually(lambda: list(tmp_path.glob("checkpoints/*/*/metadata")), TIMEOUT_S)
    interrupted.interrupt()
    for nothing_new in (again, interrupted.result()):
        assert (nothing_new["rows_added"], nothing_new["rows_total"]) == (0, 7)
        assert nothing_new["snapshot_id"] == followed["snapshot_id"]


@pytest.mark.parametrize(
    ("words", "status", "code", "text"),
    [
        (("no-such-topic",), 3, "LL0102", "'no-such-topic' does not exist"),
        (("{topic}", "--warehouse", "s3://lake/house"), 2, "LL0902", "must be a local folder"),
        (("{topic}", "--warehouse", "{file}"), 2, "LL0902", "must be a folder"),
        (("{topic}", "--every", "soon"), 2, "LL0902", "soon"),
    ],
)
def test_what_cannot_be_synced_is_refused(
    bootstrap: str,
    make_topic: MakeTopic,
    tmp_path: Path,
    words: tuple[str, ...],
    status: int,
    code: str,
    text: str,
) -> None:
    file = tmp_path / "file"
    file.touch()
    given = [word.format(topic=make_topic(), file=file) for word in words]

    ended, out, err = Sync(bootstrap, *given).end()

    assert (ended, out) == (status, "")
    assert err.startswith(f"error[{code}] ")
    assert text in err
    assert len(err.splitlines()) == 2
