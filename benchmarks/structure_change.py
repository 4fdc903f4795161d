"""The size of the source at two commits: files, lines, imports, assertions.

Nothing is timed or run; the figures follow from the files of the commits alone.
"""

from __future__ import annotations

import argparse
import ast
import io
import subprocess
import sys
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from tables import Table, record, repeat_command, section, show

_PROJECT = Path(__file__).parent.parent
_SMALL_LINES = 50
_FOLDERS = ("src/lakelog", "src/lakelog/testing", "tests", "benchmarks")
_ASSERTED = (
    "storage",
    "replica",
    "coordinator",
    "metadata",
    "server/replication",
    "tables/archive",
    "tables/iceberg",
)


def _short(commit: str) -> str:
    return subprocess.run(
        ("git", "rev-parse", "--short=8", commit),
        cwd=_PROJECT,
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def _modules(commit: str) -> Iterator[tuple[str, str]]:
    """Yield the path and the text of each Python module of a commit."""
    archive = subprocess.run(
        ("git", "archive", commit, "src", "tests", "benchmarks"),
        cwd=_PROJECT,
        check=True,
        capture_output=True,
    ).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        for member in files:
            content = files.extractfile(member) if member.name.endswith(".py") else None
            if content is not None:
                yield member.name, content.read().decode()


def _figures(modules: Sequence[tuple[str, str]], folder: str) -> Counter[str]:
    counts: Counter[str] = Counter()
    for path, text in modules:
        if not path.startswith(f"{folder}/"):
            continue
        lines = text.count("\n")
        counts.update(files=1, lines=lines, small=int(lines < _SMALL_LINES))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import | ast.ImportFrom):
                counts["imports"] += (node.end_lineno or node.lineno) - node.lineno + 1
            counts["functions"] += isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            counts["assertions"] += isinstance(node, ast.Assert)
    return counts


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else "-"


def _tables(commits: tuple[str, str]) -> list[Table]:
    modules = [list(_modules(commit)) for commit in commits]
    sizes = [
        [
            folder,
            commit,
            *(str(counts[name]) for name in ("files", "small", "lines")),
            _share(counts["imports"], counts["lines"]),
        ]
        for folder in _FOLDERS
        for commit, found in zip(commits, modules, strict=True)
        for counts in (_figures(found, folder),)
    ]
    asserted = [
        [
            package,
            commit,
            *(str(counts[name]) for name in ("functions", "assertions")),
            _share(counts["assertions"], counts["functions"]),
        ]
        for package in _ASSERTED
        for commit, found in zip(commits, modules, strict=True)
        for counts in (_figures(found, f"src/lakelog/{package}"),)
    ]
    return [
        Table(("folder", "commit", "files", "small", "lines", "imports %"), sizes, len(sizes)),
        Table(("package", "commit", "functions", "assertions", "in 100"), asserted, len(asserted)),
    ]


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(
        prog="benchmarks/structure_change.py", description=__doc__.partition("\n")[0]
    )
    parser.add_argument("before", help="a commit")
    parser.add_argument("after", nargs="?", default="HEAD", help="another one")
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    options = parser.parse_args(argv)
    tables = _tables((_short(options.before), _short(options.after)))
    show(tables)
    if options.record:
        about = (
            f"A file counts as small below {_SMALL_LINES} lines. Imports are a share of "
            "lines, assertions of functions. Repeat with "
            f"{repeat_command('structure_change', argv)}."
        )
        record(section("the source at two commits", about, tables))


if __name__ == "__main__":
    main(sys.argv[1:])
