"""The structure of the source in figures: folders, import circles, tests, sizes, text.

Nothing is timed or run; the figures follow from the files alone.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import add
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from package_figures import PackageFigures, large_parts, package_figures  # noqa: E402
from tables import Table, record, repeat_command, section, show  # noqa: E402

from import_graph import Kind, circles, package_circles, package_of, read_imports, union  # noqa: E402
from phrases import PHRASES, count_phrases, prose_files  # noqa: E402

_SOURCE = _PROJECT / "src"
_FULL_FOLDER = 15
_BETWEEN = "with whole packages"


def _folders() -> Table:
    counts = Counter(path.parent for path in _SOURCE.rglob("*.py"))
    rows = [
        [path.relative_to(_SOURCE).as_posix(), "", str(count)]
        for path, count in counts.most_common()
        if count >= _FULL_FOLDER
    ]
    rest = [count for count in counts.values() if count < _FULL_FOLDER]
    rows.append(["all others", f"{len(rest)} folders", str(sum(rest))])
    return Table(("folder", "", "files"), rows, len(rows))


def _circles() -> Table:
    """Return the sizes of circles of modules in each package, then of circles of packages."""
    imports = read_imports(_SOURCE)
    loaded = imports[Kind.LOADED]
    graphs = (
        loaded,
        union((loaded, imports[Kind.NEVER])),
        union((loaded, imports[Kind.CALLED])),
        union(imports.values()),
    )
    found: list[dict[str, list[int]]] = []
    for graph in graphs:
        sizes: dict[str, list[int]] = {}
        for circle in circles(graph):
            names = {package_of(name) for name in circle}
            sizes.setdefault(names.pop() if len(names) == 1 else _BETWEEN, []).append(len(circle))
        sizes[_BETWEEN] = sizes.get(_BETWEEN, []) + [
            len(circle) for circle in package_circles(graph)
        ]
        found.append(sizes)
    rows = [
        [name, "", *(", ".join(map(str, sizes.get(name, []))) or "0" for sizes in found)]
        for name in (*sorted(found[-1].keys() - {_BETWEEN}), _BETWEEN)
    ]
    columns = ("sizes of import circles", "", "loaded", "+ typing", "+ functions", "all imports")
    return Table(columns, rows, len(rows))


def _share(part: int, whole: int) -> str:
    return f"{100 * part / whole:.1f}" if whole else ""


def _code_row(name: str, figures: PackageFigures) -> list[str]:
    counts = (figures.functions, figures.assertions)
    return [
        name,
        f"{figures.mirrored} of {figures.modules}",
        *map(str, counts),
        _share(figures.assertions, figures.functions),
        str(figures.long_functions),
        str(figures.long_files),
    ]


def _text_row(name: str, figures: PackageFigures, phrases: int) -> list[str]:
    stated = (figures.errors, figures.units, figures.sources)
    return [
        name,
        f"{figures.docstrings} of {figures.public_functions}",
        *(_share(count, figures.docstrings) for count in stated),
        _share(figures.comments, figures.lines),
        str(phrases),
    ]


def _packages(phrases: dict[Path, Counter[str]]) -> list[Table]:
    code, text = [], []
    found: list[PackageFigures] = []
    for package in sorted(path.parent for path in _SOURCE.glob("lakelog/*/__init__.py")):
        name = package.name
        figures = package_figures(package, _PROJECT)
        bad = sum(count.total() for path, count in phrases.items() if package in path.parents)
        found.append(figures)
        code.append(_code_row(name, figures))
        text.append(_text_row(name, figures, bad))
    total = reduce(add, found)
    bad = sum(count.total() for path, count in phrases.items() if _SOURCE in path.parents)
    code.append(_code_row("all", total))
    text.append(_text_row("all", total, bad))
    code_columns = ("package", "with a mirrored test", "functions", "assertions", "in 100")
    text_columns = ("package", "documented functions", "errors %", "units %", "source %")
    return [
        Table((*code_columns, "over 40 lines", "files over 400"), code, len(code)),
        Table((*text_columns, "comments %", "phrases"), text, len(text)),
    ]


def _large() -> Table:
    parts = large_parts(_SOURCE)
    rows = [[name, "", str(lines)] for name, lines in parts]
    return Table(("files over 400 lines, functions over 40", "", "lines"), rows, len(rows))


def _phrases(phrases: dict[Path, Counter[str]]) -> Table:
    """How often each phrase occurs, and where."""
    places: dict[str, Counter[str]] = {
        name: Counter() for name in ("src", "tests", "benchmarks", "documents")
    }
    for path, counts in phrases.items():
        top = path.relative_to(_PROJECT).parts[0]
        places[top if top in places else "documents"] += counts
    rows = [[name, "", *(str(counts[name]) for counts in places.values())] for name in PHRASES]
    rows.append(["all", "", *(str(counts.total()) for counts in places.values())])
    return Table(("phrase", "", *places), rows, len(rows) - 1)


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/structure.py", description=__doc__)
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    options = parser.parse_args(argv)
    phrases = {path: count_phrases(path) for path in prose_files(_PROJECT)}
    tables = [_folders(), _circles(), *_packages(phrases), _large(), _phrases(phrases)]
    show(tables)
    if options.record:
        about = (
            f"Folders with {_FULL_FOLDER} files and more. Circles: of the imports at load time, "
            "plus imports under `TYPE_CHECKING`, in functions, or both. Errors, units "
            "and source: the share of public functions' docstrings that state them. Repeat with "
            f"{repeat_command('structure', argv)}."
        )
        record(section("structure of the source", about, tables))


if __name__ == "__main__":
    main(sys.argv[1:])
