"""The order in which a request calls the functions of the broker.

Python reports every call; only functions of `src/lakelog` count. Work of
other threads is not seen.

- files: distinct source files whose functions were called.
- moves: changes of the file in the sequence of calls, the first call included. A return from a
  function is not a call.
- returns: moves into a file that was left before, which is moves less files.
- calls: all calls. A generator or a coroutine that continues counts as called again.

A loop counts once in files, moves and returns: a function that its caller has already called, with
everything below it, adds only to `calls`.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import lakelog

_SOURCE = f"{Path(lakelog.__file__).parent}/"


class Figures(NamedTuple):
    """The figures of one trace; the module defines them."""

    files: int
    moves: int
    returns: int
    calls: int


class CallTrace:
    """A function for `sys.setprofile`."""

    def __init__(self, answering: Collection[CodeType] = ()) -> None:
        """`answering` are the functions that hand bytes of the answer to the socket."""
        self._answering = answering
        self._called: list[set[CodeType]] = [set()]
        """For each running function the functions it has called; the first is the event loop."""
        self._repeated = 0
        """Running functions at and below a repeated call."""
        self._files: list[str] = []
        self._sequence: list[tuple[int, str, str]] = []
        """Depth, path below `src/lakelog` and name of each function that `files` counts."""
        self._calls = 0
        self._answered = (0, 0)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if code in self._answering:
            self._answered = (len(self._files), self._calls)
        elif code.co_filename.startswith(_SOURCE):
            if event == "call":
                self._enter(code)
            elif event == "return":
                self._leave()

    def _enter(self, code: CodeType) -> None:
        self._calls += 1
        if self._repeated or (code in self._called[-1] and len(self._called) > 1):
            self._repeated += 1
            return
        self._called[-1].add(code)
        self._sequence.append(
            (len(self._called) - 1, code.co_filename.removeprefix(_SOURCE), code.co_qualname)
        )
        self._called.append(set())
        self._files.append(code.co_filename)

    def _leave(self) -> None:
        if self._repeated:
            self._repeated -= 1
        else:
            self._called.pop()
            assert self._called, "the event loop does not return while it is traced"

    def figures(self, *, to_answer: bool) -> Figures:
        """Return the figures up to the last byte of the answer, or to the end of the trace."""
        end, calls = self._answered if to_answer else (len(self._files), self._calls)
        files = self._files[:end]
        moves = sum(file != before for file, before in zip(files, ["", *files], strict=False))
        distinct = len(set(files))
        return Figures(distinct, moves, moves - distinct, calls)

    def sequence(self, *, to_answer: bool) -> list[str]:
        """Return one line for each counted call, indented by its depth.

        A line that moves to another file names the file; `<-` marks a return to an earlier one.
        """
        end = self._answered[0] if to_answer else len(self._files)
        lines, seen, before = [], set[str](), ""
        for depth, path, name in self._sequence[:end]:
            mark = "  " if path == before else "<-" if path in seen else "->"
            where = "" if path == before else f"  {path}"
            lines.append(f"{mark} {'  ' * depth}{name}{where}")
            seen.add(path)
            before = path
        return lines
