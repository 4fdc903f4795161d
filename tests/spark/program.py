"""Programs with a Spark session of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def result_of(script: Path, *words: str, folder: Path, environment: Mapping[str, str]) -> Any:
    """Run a script in a folder; return the JSON of its last line. It must succeed."""
    done = subprocess.run(
        [sys.executable, str(script), *words],
        capture_output=True,
        text=True,
        timeout=900,
        cwd=folder,
        env=environment,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return json.loads(done.stdout.splitlines()[-1])
