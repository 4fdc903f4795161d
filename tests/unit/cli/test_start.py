"""The imports at the start of a command, which take nearly all of its time.

The tests count modules, not seconds, so that they do not fail on a busy machine.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterable

import pytest

from lakelog.cli.main import COMMANDS
from lakelog.cli.stored_help import FOLDER

PARSERS = {"cyclopts", "rich", "attrs", "inspect", "docstring_parser", "pygments"}
CODECS = {"crc32c", "cramjam", "re2", "rpds"}
LOOP = {"asyncio", "ssl", "concurrent.futures"}
SPARK = {"pyspark", "pyarrow", "pyiceberg", "numba"}
BROKER = {
    "lakelog.server",
    "lakelog.storage",
    "lakelog.coordinator",
    "lakelog.replica",
    "lakelog.protocol.registry",
}
RECORDS = {"lakelog.records", "lakelog.client.consumer", "lakelog.client.producer"}
HELP = sorted(path.stem.partition("-") for path in FOLDER.glob("*.txt"))


def modules_of(argv: list[str]) -> set[str]:
    """The modules that a command line has imported by its end."""
    code = (
        "import sys; from lakelog.cli.main import run; run(sys.argv[1:]);"
        "sys.stderr.write('\\n@' + ' '.join(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *argv], capture_output=True, text=True, check=True
    )
    return set(done.stderr.rpartition("@")[2].split())


def heavy(argv: list[str], *unwanted: Iterable[str]) -> set[str]:
    return modules_of(argv) & {name for names in unwanted for name in names}


@pytest.mark.parametrize("name", HELP, ids=lambda name: "".join(name))
def test_help_reads_a_page_and_imports_no_parser(name: tuple[str, str, str]) -> None:
    noun, _, command = name
    argv = [noun, *([command] if command else []), "--help"]
    assert heavy(argv, PARSERS, CODECS, LOOP, SPARK, BROKER, RECORDS, ["json", "socket"]) == set()


@pytest.fixture(scope="module")
def closed_address() -> str:
    """Refuses connections, and is not a loopback address: commands do not wait for a broker."""
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        return f"0.0.0.0:{taken.getsockname()[1]}"


@pytest.mark.parametrize(
    "argv",
    [
        ["topic", "list"],
        ["topic", "describe", "t"],
        ["topic", "create", "t"],
        ["config", "get"],
        ["group", "list"],
        ["txn", "list"],
    ],
    ids=" ".join,
)
def test_administration_imports_neither_loop_nor_records(
    argv: list[str], closed_address: str
) -> None:
    command = [*argv, "-b", closed_address]
    found = heavy(command, CODECS, LOOP, SPARK, BROKER, RECORDS, ["rich"])
    assert found == set()


def test_listing_topics_declares_no_messages_of_groups(closed_address: str) -> None:
    found = modules_of(["topic", "list", "-b", closed_address])
    assert "lakelog.client.admin.topics" in found
    assert not {name for name in found if name.startswith("lakelog.client.admin.group")}


def test_every_noun_has_help_that_is_tested() -> None:
    assert {noun for noun, _, _ in HELP} == set(COMMANDS)
