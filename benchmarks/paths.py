"""How many source files a request passes through, from its bytes to the bytes of its answer.

`tests/request_paths.py` traces the requests; `tests/call_trace.py` defines the figures. They are
the same in every run; `tests/unit/server/test_request_paths.py` holds the returns.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from tables import Table, record, repeat_command, section, show  # noqa: E402

from call_trace import Figures  # noqa: E402
from request_paths import request_paths  # noqa: E402


def main(argv: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(prog="benchmarks/paths.py", description=__doc__)
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    parser.add_argument("--sequence", metavar="REQUEST", help="print its calls in their order")
    options = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        paths = request_paths(Path(folder))
    if options.sequence:
        print(*(path for path in paths if path.request == options.sequence), sep="\n")
        return
    rows = [[path.request, path.case, *map(str, path.figures)] for path in paths]
    tables = [Table(("request", "case", *Figures._fields), rows, len(rows))]
    show(tables)
    if options.record:
        about = (
            "Source files that a request passes through, moves between them, returns to an earlier "
            "file, and calls; `tests/call_trace.py` defines them. Repeat with "
            f"{repeat_command('paths', argv)}."
        )
        record(section("paths of requests", about, tables))


if __name__ == "__main__":
    main(sys.argv[1:])
