"""The cache of compiled loops, which the processes of a host share."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import lakelog
from lakelog.columns.compiler import _private_folder, binary, compiled, empty, first_call, numbers

pytestmark = [pytest.mark.xdist_group("compiler")]
"""In one process, which keeps the compiled loops."""

_LOOP = """
def copy(target, at, source, start, size):
    target[at : at + size] = source[start : start + size]

def part(number):
    return number + {number}

def loop(out, data):
    copy(out, 1, data, 0, 2)
    return part(len(out))
"""
_RUN = """
import sys
import numpy as np
from lakelog.columns.compiler import compiled, first_call
sys.path.insert(0, sys.argv[1])
import small_loop
[run] = compiled([small_loop.loop], [small_loop.part], copy=small_loop.copy)
results = []

def work():
    out = np.zeros(4, np.uint8)
    results[:] = [run(out, np.array([7, 8, 9], np.uint8)), *out]

first_call([run], work)
print(sum(run.stats.cache_misses.values()), *results, run.stats.cache_path)
"""
DECODER = """
from lakelog.columns.decoding.compiled import CompiledDecoder
stats = CompiledDecoder(with_headers=False)._loops[0].stats
print(sum(stats.cache_misses.values()), stats.cache_path)
"""


def start(
    code: str, *arguments: object, environment: dict[str, str] | None = None
) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=os.environ | (environment or {}),
        stdout=subprocess.PIPE,
        text=True,
    )


def run(folder: Path, environment: dict[str, str] | None = None) -> list[str]:
    """Return compilations, results and cache folder of a process that runs the small loop."""
    # Python's own cache takes a file of equal size for unchanged within one second.
    process = start(
        _RUN, folder, environment={"PYTHONDONTWRITEBYTECODE": "1", **(environment or {})}
    )
    answer, _ = process.communicate()
    assert process.returncode == 0
    return answer.split()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with the loop, and nothing else that can be written below it."""
    home = tmp_path / "source"
    home.mkdir()
    home.joinpath("small_loop.py").write_text(_LOOP.format(number=1))
    return home


def test_a_second_process_loads_the_result_of_the_first(folder: Path) -> None:
    first, second = run(folder), run(folder)
    assert first[1:] == second[1:] == ["5", "0", "7", "8", "0", str(folder / "__pycache__")]
    assert (first[0], second[0]) == ("1", "0")


@pytest.mark.long
def test_a_change_of_the_source_is_compiled_again_also_within_one_second(folder: Path) -> None:
    source = folder / "small_loop.py"
    assert run(folder)[:2] == ["1", "5"]
    times = source.stat()
    source.write_text(_LOOP.format(number=2))
    os.utime(source, ns=(times.st_atime_ns, times.st_mtime_ns + 1_000_000))
    assert run(folder)[:2] == ["1", "6"]


@pytest.mark.long
def test_another_processor_compiles_for_itself(folder: Path) -> None:
    assert run(folder)[0] == "1"
    other = {"NUMBA_CPU_NAME": "generic", "NUMBA_CPU_FEATURES": ""}
    assert [run(folder, other)[0] for _ in range(2)] == ["1", "0"]
    assert run(folder)[0] == "0"


@pytest.mark.long
def test_a_damaged_cache_is_replaced(folder: Path) -> None:
    assert run(folder)[0] == "1"
    for pattern in ("*.nbc", "*.nbi"):
        for file in folder.joinpath("__pycache__").glob(pattern):
            file.write_bytes(file.read_bytes()[:40])
        assert run(folder)[1] == "5"
        assert run(folder)[:2] == ["0", "5"]


@pytest.mark.long
def test_without_a_folder_that_it_can_write_numba_gets_a_private_one(
    folder: Path, tmp_path: Path
) -> None:
    folder.joinpath("__pycache__").touch()
    not_a_folder = tmp_path / "file"
    not_a_folder.touch()
    environment = {
        "HOME": str(not_a_folder),
        "XDG_CACHE_HOME": str(not_a_folder),
        "TMPDIR": str(tmp_path),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    first, second = run(folder, environment), run(folder, environment)
    assert (first[0], second[0], first[1]) == ("1", "0", "5")
    private = tmp_path / f"lakelog-{os.getuid()}"
    assert first[-1].startswith(str(private))
    assert private.stat().st_mode & 0o777 == 0o700


def test_a_private_folder_that_others_can_write_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    _private_folder().chmod(0o777)
    with pytest.raises(PermissionError, match="others can write it"):
        _private_folder()


def _link_all(source: Path, target: Path, *names: str) -> Path:
    """Make `target` look like `source`, with links to all but the folders below each other.

    Return the last of these folders, which is a real one and holds no `__pycache__`.
    """
    for name in names:
        source, target = source / name, target / name
        target.mkdir(parents=True)
        for each in source.iterdir():
            if each.name not in (*names, "__pycache__"):
                target.joinpath(each.name).symlink_to(each)
    return target


@pytest.mark.long
def test_processes_of_a_host_compile_once_and_where_they_may_write(tmp_path: Path) -> None:
    """They use the user's cache if the package is read only. Of processes that start together, one
    compiles and the others wait for its result."""
    source = Path(lakelog.__file__).parent.parent
    package = tmp_path / "package"
    capacity = _link_all(source, package, "lakelog", "columns", "decoding")
    (
        capacity / "__pycache__"
    ).touch()  # a file where the cache's folder would be: not even root can
    environment = {
        "PYTHONPATH": str(package),
        "PYTHONDONTWRITEBYTECODE": "1",
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "HOME": str(tmp_path),
    }
    started = [start(DECODER, environment=environment) for _ in range(3)]
    said = [process.communicate()[0].split() for process in started]
    assert sorted(number for number, _ in said) == ["0", "0", "1"]
    assert all(path.startswith(str(tmp_path / "cache")) for _, path in said)


def test_errors_of_the_work_are_raised(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    import small_loop  # type: ignore[import-not-found]

    loops = compiled([small_loop.loop], [small_loop.part], copy=small_loop.copy)

    def fail() -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        first_call(loops, fail)


def test_nulls_and_empty_items_differ() -> None:
    data, ends = np.frombuffer(b"abcd", np.uint8), np.array([0, 3, 3, 3, 4], np.int32)
    column = binary(data, ends, np.array([0, 0, 1, 0], np.uint8), 4)
    assert column.to_pylist() == [b"abc", b"", None, b"d"]
    assert binary(data, ends, np.zeros(4, np.uint8), 2).to_pylist() == [b"abc", b""]
    assert binary(data, ends, np.zeros(0, np.uint8), 4).null_count == 0


def test_memory_is_arrows_and_returns_to_it() -> None:
    before = pa.total_allocated_bytes()
    array = empty(1000, np.int64)
    array[:] = 7
    assert (array.shape, array.dtype) == ((1000,), np.int64)
    assert pa.total_allocated_bytes() - before >= 8000
    del array
    assert pa.total_allocated_bytes() == before
    assert len(empty(0, np.int32)) == 0


def test_numbers_are_the_first_rows_without_a_copy() -> None:
    array = np.array([5, 6, 7], np.int32)
    column = numbers(array, pa.int32(), 2)
    assert (column.to_pylist(), column.null_count) == ([5, 6], 0)
    assert column.buffers()[1].address == array.ctypes.data
