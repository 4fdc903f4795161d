"""Which operation meets an injected fault."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from doubles.disk_faults import Fault, Faults, Operation, kind_of

LOG, INDEX = Path("/data/t-0/0.log"), Path("/data/t-0/0.index")


def fault(operation: Operation = "write", *, skip: int = 0, times: int = 1) -> Faults:
    faults = Faults()
    faults.add(Fault(operation, errno.EIO, ".log", skip, 0, times))
    return faults


@pytest.mark.parametrize(
    ("operation", "path", "fails"),
    [("write", LOG, True), ("sync", LOG, False), ("write", INDEX, False)],
)
def test_operation_and_suffix_decide(operation: Operation, path: Path, fails: bool) -> None:
    assert (fault().take(operation, path) is not None) is fails


def test_the_first_operations_pass_and_the_next_fail_as_often_as_wanted() -> None:
    faults = fault(skip=2, times=3)
    assert [faults.take("write", LOG) is not None for _ in range(7)] == [
        *(False, False),
        *(True, True, True),
        *(False, False),
    ]
    assert faults.taken == {"EIO .log": 3}


def test_forgotten_faults_do_not_happen() -> None:
    faults = fault()
    faults.forget()
    assert faults.take("write", LOG) is None


@pytest.mark.parametrize(
    ("name", "kind"), [("0.log", ".log"), ("meta.properties", ".properties"), ("data", "data")]
)
def test_files_are_counted_by_suffix_or_name(name: str, kind: str) -> None:
    assert kind_of(Path("/x") / name) == kind
