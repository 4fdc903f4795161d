"""How often a request returns to a source file that it has left: no more often than recorded.

`call_trace.py` defines a return. A change that saves returns replaces the figures.
"""

from __future__ import annotations

import sys
from pathlib import Path

from request_paths import request_paths

RECORDED = {
    ("Produce", "decoded"): 5,
    ("Fetch", "decoded"): 12,
    ("Fetch", "decoded, in a session"): 12,
    ("Produce", "first of a transaction"): 42,
    ("EndTxn", "to the answer"): 19,
    ("EndTxn", "with its markers"): 62,
    ("JoinGroup", "first member, version 3"): 29,
    ("JoinGroup", "first member, version 9"): 29,
    ("Produce", "first of a connection"): 11,
    ("Produce", "repeated"): 2,
    ("Fetch", "repeated"): 7,
    ("Fetch", "repeated, in a session"): 7,
}
VERSION = (3, 11)
"""The recorded version of Python; 3.12 calls no function for a comprehension."""


def test_requests_return_to_earlier_files_as_recorded(device_path: Path) -> None:
    paths = {(path.request, path.case): path for path in request_paths(device_path)}
    returns = {name: path.figures.returns for name, path in paths.items()}
    assert returns.keys() == RECORDED.keys()
    for name, count in returns.items():
        assert count <= RECORDED[name], f"{count} returns, {RECORDED[name]} recorded: {paths[name]}"
    if sys.version_info[:2] == VERSION:
        assert returns == RECORDED, "record the lower figures"
