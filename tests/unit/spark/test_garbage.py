from __future__ import annotations

import subprocess
import sys

_SCRIPT = """
import gc, importlib.machinery, sys
from lakelog.spark.garbage import exempt_modules
exempt_modules()
found = [gc.get_freeze_count()]
sys.modules["__main__"].__spec__ = importlib.machinery.ModuleSpec("pyspark.daemon", None)
exempt_modules()
found.append(gc.get_freeze_count())
kept = [[] for _ in range(100)]
exempt_modules()
found.append(gc.get_freeze_count())
import wave
exempt_modules()
found.append(gc.get_freeze_count())
print(*found)
"""


def test_workers_do_not_collect_loaded_modules_again_and_other_processes_are_left_alone() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT], capture_output=True, text=True, check=True
    )
    other, first, again, after_import = map(int, done.stdout.split())
    assert other == 0
    assert first > 1000
    assert again <= first, "nothing was imported"
    assert after_import > first
