"""`lakelog table sync` as a user runs it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_process import eventually
from spark.scripts import counted, printed_scripts, run_script
from spark.table_sync import TIMEOUT_S, Sync
from spark.topics import MakeTopic, produce

pytestmark = [pytest.mark.spark]


def test_a_table_is_synced_from_the_command_line(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = make_topic(6)
    where = (topic, "--warehouse", str(tmp_path))

    status, out, err = Sync(bootstrap, *where).end()
    assert (status, err) == (0, f"{topic}: 6 records in the table\n")
    facts = dict(line.split("  ", 1) for line in out.splitlines()[:6] if "  " in line)
    assert Path(facts["metadata path"].strip().removeprefix("file://")).is_file()
    scripts = printed_scripts(out)
    assert list(scripts) == ["duckdb", "pyiceberg", "spark"]
    for reader in ("duckdb", "spark"):
        assert counted(run_script(scripts[reader], tmp_path)) == {"0": "2", "1": "2", "2": "2"}
    assert f"{topic}" in run_script(scripts["pyiceberg"], tmp_path)

    produce(bootstrap, topic, range(6, 7))
    follow = Sync(bootstrap, *where, "--follow", "--every", "1s", "-f", "json")
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
        (("{topic}", "--warehouse", "ftp://lake/house"), 2, "LL0902", "a URI with one of s3://"),
        (("{topic}", "--warehouse", "/proc"), 2, "LL0902", "can be written to: /proc"),
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
