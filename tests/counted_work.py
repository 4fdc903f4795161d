"""How much Python runs: counted lines, calls and bytecodes, which are the same on every machine.

Bytecodes differ between minor versions of Python, lines and calls hardly do.
"""

from __future__ import annotations

import gc
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_TESTS = str(Path(__file__).parent)


def lines_run(action: Callable[[], object]) -> int:
    """The lines that `action` runs, in whatever functions; its exception is the caller's."""
    return _counted(action, lambda frame: None)["line"]


def work_run(action: Callable[[], object]) -> Counter[str]:
    """As `opcode` and `call`, the bytecodes and calls that `action` runs outside of `tests`."""

    def begin(frame: FrameType) -> None:
        frame.f_trace_opcodes = True

    return _counted(action, begin, outside=_TESTS)


def _counted(
    action: Callable[[], object], begin: Callable[[FrameType], None], outside: str = "\0"
) -> Counter[str]:
    """Events of tracing by name; `begin` is called with each frame."""
    counts: Counter[str] = Counter()

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        if event == "call":
            if frame.f_code.co_filename.startswith(outside):
                return None
            begin(frame)
        counts[event] += 1
        return trace

    before, collects = sys.gettrace(), gc.isenabled()
    gc.disable()  # or finalizers of what earlier tests left would be counted
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        if collects:
            gc.enable()
    return counts
