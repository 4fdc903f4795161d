"""Runs the commands of README unchanged, in a copy of the checkout.

There are two differences. The port may be in use, so another port replaces it. And pip must not
download: dependencies come from the environment of the tests by PYTHONPATH, without its lakelog,
which is installed from the copy.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.spark]

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(console|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NOT_SOURCES = shutil.ignore_patterns(".*", "build", "__pycache__", "spark-warehouse")
OURS = ("PYTHONPATH", "PYSPARK_PYTHON", "LAKELOG_WORKER_PYTHON", "LAKELOG_WORKER_PYTHONPATH")
SETTINGS = {
    "PYTHONPATH": sysconfig.get_path("purelib"),
    "PIP_NO_INDEX": "1",
    "PIP_NO_DEPS": "1",
    "PIP_NO_BUILD_ISOLATION": "0",  # pip's spelling of "no isolation"
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "SPARK_LOCAL_IP": "127.0.0.1",
}
SCRIPT = "read.py"
INSTALLED = ".venv/lib/python*/site-packages"
TIMEOUT_S = 900
UPKEEP = """
lakelog table list
lakelog table describe requests
lakelog table audit requests
"""
"""The next commands of a reader, which find the table of README."""
WITHOUT_KEYS = f"""
lakelog topic alter requests --unset table.warehouse --unset table.catalog --unset table.name
{UPKEEP}
lakelog table compact requests
lakelog table expire requests
lakelog table drop requests --yes
"""


def blocks() -> Iterator[tuple[str, str]]:
    """Kind and text of each block of README."""
    yield from BLOCK.findall((ROOT / "README.md").read_text(encoding="utf-8"))


def lines_of(text: str) -> list[str]:
    """The commands of a console block."""
    return [line.removeprefix("$ ") for line in text.splitlines() if line.startswith("$ ")]


def is_for_make(line: str) -> bool:
    return line.startswith("make ")


def shell_script(port: int) -> str:
    """All lines in their order; Python is saved as README says, and run."""
    script = ["set -e -o pipefail", "trap 'kill $(jobs -p) 2>/dev/null || true' EXIT"]
    for kind, text in blocks():
        if kind == "python":
            script += [f"cat > {SCRIPT} <<'END'\n{text}END", f"python {SCRIPT}"]
        else:
            script += [line for line in lines_of(text) if not is_for_make(line)]
    return "\n".join(with_port(line, port) for line in script)


def with_port(line: str, port: int) -> str:
    line = line.replace("lakelog dev &", f"lakelog dev --port {port} &")
    return line.replace("127.0.0.1:9092", f"127.0.0.1:{port}").replace(":9192", ":0")


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def files_below(folder: Path) -> set[str]:
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("readme") / "lakelog"
    return Path(shutil.copytree(ROOT, folder, ignore=NOT_SOURCES))


def run(checkout: Path, script: str, *, port: int, path: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in OURS}
    environment |= SETTINGS | {"PATH": path, "LAKELOG_BROKERS": f"127.0.0.1:{port}"}
    return subprocess.run(
        ["bash", "-c", script],
        cwd=checkout,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


def test_every_line_works_in_a_fresh_checkout(checkout: Path) -> None:
    port = free_port()
    # The reader's own Python, whatever environment the tests are run in.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    script = shell_script(port)
    assert script.count(f":{port}") >= 1
    # The same script where nothing is activated: the workers must not run the PATH's Python.
    outside = "PATH=/usr/bin:/bin:$(dirname $(command -v java)) .venv/bin/python read.py"
    later = f"{outside}\necho outside: $?\n{UPKEEP}{WITHOUT_KEYS}"
    script = script.replace(f"python {SCRIPT}", f"python {SCRIPT}\n{later}")

    done = run(checkout, script, port=port, path=path)

    assert done.returncode == 0, f"{done.stdout[-4000:]}\n{done.stderr[-8000:]}"
    assert done.stdout.count("|requests|") == 2 * 20, "rows that show() prints, of both scripts"
    assert "outside: 0" in done.stdout
    assert '"name": "orders"' in done.stdout
    assert re.search(r"^rows total +1000$", done.stdout, re.MULTILINE)
    # Listed, described and audited by the topic's keys, and again without them.
    assert (
        len(re.findall(r"^requests +lakelog\.requests .* 1000 +0$", done.stdout, re.MULTILINE)) == 2
    )
    assert len(re.findall(r"^rows +1000$", done.stdout, re.MULTILINE)) == 4
    assert len(re.findall(r"^sound +yes$", done.stdout, re.MULTILINE)) == 2
    assert re.search(r"^files deleted +0$", done.stdout, re.MULTILINE)
    (installed,) = checkout.glob(INSTALLED)
    for package in ("lakelog", "pyspark_lakelog", "pytest_lakelog"):
        assert files_below(installed / package) == files_below(ROOT / "src" / package)


def test_lines_with_make_name_existing_targets() -> None:
    wanted = {
        line.split()[1]
        for kind, text in blocks()
        if kind == "console"
        for line in lines_of(text)
        if is_for_make(line)
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert wanted == {"demo", "demo-cluster", "test"}
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in wanted)
