"""Every example of docs/client.md runs, in its order."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import lakelog.testing
from lakelog.client import connect

_PAGE = Path(__file__).parents[2] / "docs" / "client.md"
_TIMEOUT_S = 240


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", _PAGE.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.usefixtures("lakelog_only")
def test_the_examples_run_one_after_the_other() -> None:
    """Each continues the one before it: together they are one program."""
    with lakelog.testing.broker() as broker:
        broker.create_topic("orders", partitions=3)
        program = "\n".join(blocks("python")).replace("localhost:9092", broker.bootstrap_servers)
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", program],
            capture_output=True,
            text=True,
            timeout=_TIMEOUT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        with (
            connect(broker.bootstrap_servers) as client,
            client.reader(read_committed=True) as reader,
        ):
            copied = len(list(reader.read("invoices", 0, 0)))
            progress = client.admin.groups.offsets("copies").values()
    lines = done.stdout.splitlines()
    rows = [line.split() for line in lines if line.startswith("orders ")]
    assert sum(int(row[3]) for row in rows) == 3
    assert "row 0: partition 9 does not exist; the topic has 3" in done.stdout
    assert any(line.split() == ["fifth", "1000"] for line in lines)
    assert copied, "the batches of the transaction of asyncio"
    assert sum(each.offset for each in progress) > 0, "committed in the same transaction"


def test_the_page_names_extras_that_exist() -> None:
    [commands] = blocks("console")
    extras = re.search(r"(?:lakelog|\.)\[(.*?)\]", commands)
    assert extras is not None
    project = (_PAGE.parents[1] / "pyproject.toml").read_text()
    assert all(f"\n{extra} = [" in project for extra in extras[1].split(","))
