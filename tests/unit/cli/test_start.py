"""The imports at the start of a command, which take nearly all of its time.

The tests count modules, not seconds, so that they do not fail on a busy machine.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterable

import pytest

from unit.cli.command_model import commands

RENDERERS = {"rich", "pygments", "markdown_it"}
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
HELP = sorted({*(words.split()[0] for words in commands()), *commands()})


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


def test_help_imports_only_the_declarations() -> None:
    """One process shows all pages, and reports the modules that each has imported."""
    code = (
        "import sys; from lakelog.cli.main import run\n"
        "known = set()\n"
        "def report(name):\n"
        "    print(name, *(sys.modules.keys() - known), sep='\\t', file=sys.stderr)\n"
        "    known.update(sys.modules)\n"
        "report('start')\n"
        "for words in sys.argv[1:]:\n"
        "    assert run(words.split()) == 0\n"
        "    report(words)\n"
    )
    pages = [f"{words} --help" for words in HELP]
    done = subprocess.run(
        [sys.executable, "-c", code, *pages], capture_output=True, text=True, check=True
    )
    rows = [line.split("\t") for line in done.stderr.splitlines()]
    assert [name for name, *_ in rows] == ["start", *pages]
    unwanted = {*RENDERERS, *CODECS, *LOOP, *SPARK, *BROKER, *RECORDS, "shutil", "socket"}
    found = {name: unwanted.intersection(modules) for name, *modules in rows}
    assert {name: modules for name, modules in found.items() if modules} == {}


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
