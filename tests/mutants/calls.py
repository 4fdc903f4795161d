"""A plugin of pytest: notes which functions of the product each test calls, or runs chosen tests.

With `MUTANTS_NOTE` set, each test's duration and calls are written to that file; with
`MUTANTS_ONLY`, the tests listed in that file run, in that order, and no others. What a test finds
done already, in a fixture or a cache that it shares, it is not seen to call.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

import lakelog

_FOLDER = str(Path(lakelog.__file__).parent)
_NOTE, _ONLY = "MUTANTS_NOTE", "MUTANTS_ONLY"
_notes: dict[str, tuple[float, list[str]]] = {}


def key_of(path: str, function: str) -> str:
    """Args:
    path: of the module below `src/lakelog`.
    """
    return f"{path}:{function.replace('.<locals>', '')}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    if _NOTE not in os.environ:
        return (yield)
    called: set[CodeType] = set()

    def note(frame: FrameType, event: str, argument: Any) -> None:
        if event == "call":
            called.add(frame.f_code)

    begin = time.monotonic()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        return (yield)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
        _notes[item.nodeid] = time.monotonic() - begin, sorted(_keys(called))


def _keys(called: set[CodeType]) -> set[str]:
    return {
        key_of(os.path.relpath(code.co_filename, _FOLDER), code.co_qualname)
        for code in called
        if code.co_filename.startswith(_FOLDER)
    }


def pytest_sessionfinish() -> None:
    if _NOTE in os.environ:
        Path(os.environ[_NOTE]).write_text(json.dumps(_notes))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if _ONLY in os.environ:
        names = json.loads(Path(os.environ[_ONLY]).read_text())
        places = {name: place for place, name in enumerate(names)}
        items[:] = [item for item in items if item.nodeid in places]
        items.sort(key=lambda item: places[item.nodeid])
