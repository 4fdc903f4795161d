from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.cli.local_cluster.ensemble import EnsembleError
from lakelog.testing.cluster_demo import __main__ as program


@pytest.mark.parametrize(("is_kept", "status"), [(True, 0), (False, 1)])
def test_a_loss_is_an_exit_status(
    monkeypatch: pytest.MonkeyPatch, is_kept: bool, status: int
) -> None:
    monkeypatch.setattr(program, "run_demo", lambda folder: is_kept)
    assert program.main() == status


def test_a_missing_program_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run_demo(folder: Path) -> bool:
        raise EnsembleError("ZooKeeper needs Java")

    monkeypatch.setattr(program, "run_demo", run_demo)
    assert program.main() == 1
    assert capsys.readouterr().err == "demo-cluster: ZooKeeper needs Java\n"
