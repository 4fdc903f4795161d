"""Compiles loops with Numba, once for all processes of a host, and makes the memory that they fill.

Numba keeps the result beside the source file or, if it cannot write there, in the user's cache
folder. Where neither can be written (a container without a home), a folder of the user under the
folder for temporary files holds it. Numba compiles again after a change of the source, of Numba, of
Python or of the processor. Arrow owns the memory afterwards. Importing this module needs Numba.
"""

from __future__ import annotations

import fcntl
import os
import pickle
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba
import numba.extending
import numpy as np
from numba.core import cgutils, types

if TYPE_CHECKING:
    import pyarrow as pa


def empty(count: int, kind: Any) -> Any:
    """Return an array of `count` numbers, whose values are undefined.

    Arrow's allocator keeps memory that was freed a moment ago. Fresh pages of the kernel would cost
    as much time as the decoding.
    """
    import pyarrow as pa

    return np.frombuffer(pa.allocate_buffer(count * np.dtype(kind).itemsize), kind)


def numbers(array: Any, kind: pa.DataType, rows: int) -> pa.Array:
    """Return the first `rows` numbers of a NumPy array as a column without nulls.

    `pa.array` would import pandas, if it is installed, which takes as long as decoding ten million
    records.
    """
    import pyarrow as pa

    assert kind.bit_width == 8 * array.itemsize, "the type states the size of the numbers"
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(array[:rows])], 0)


def binary(data: Any, ends: Any, nulls: Any, rows: int) -> pa.Array:
    """Return a binary column of NumPy arrays. nulls: 1 for null; empty if no row is null."""
    import pyarrow as pa

    used = nulls[:rows]
    null_count = int(np.count_nonzero(used))
    valid = pa.py_buffer(np.packbits(used == 0, bitorder="little")) if null_count else None
    buffers = [valid, pa.py_buffer(ends[: rows + 1]), pa.py_buffer(data[: int(ends[rows])])]
    return pa.Array.from_buffers(pa.binary(), rows, buffers, null_count)


_LOCK = "lakelog-compiler.lock"
_DAMAGE = (EOFError, pickle.UnpicklingError, AttributeError, IndexError, ValueError, KeyError)
"""Errors of reading a damaged cache: a full disk or a kill can leave half a file."""


def compiled(
    loops: list[Callable[..., Any]],
    parts: list[Callable[..., Any]],
    *,
    inlined: bool = False,
    **replaced: Callable[..., Any],
) -> list[Any]:
    """Return the loops as functions that Numba compiles at their first call.

    parts: functions that the loops call, in the same file: Numba looks for changes in no other.
    inlined: copy the parts into the loops. LLVM leaves large parts alone, whose results then pass
    through memory.
    replaced: functions of that file that have a faster equal in machine code, by the names of
    `_REPLACEMENTS`. Raises whatever Numba raises.
    """
    for name, function in replaced.items():
        numba.extending.overload(function)(_REPLACEMENTS[name])
    for part in parts:
        numba.extending.register_jitable(forceinline=inlined)(part)
    try:
        return [_cached(loop) for loop in loops]
    except RuntimeError:  # Numba has found no folder that it can write
        with _cache_in(_private_folder()):
            return [_cached(loop) for loop in loops]


def first_call(loops: list[Any], work: Callable[[], None]) -> None:
    """Call `work`, which calls all `loops` for the first time and so compiles or loads them.

    Processes that do so at the same time on one host wait for each other, so that only the first
    one compiles. A damaged cache is replaced. Raises the errors of `work`.
    """
    with _alone_in(Path(loops[0].stats.cache_path)):
        try:
            work()
        except _DAMAGE:
            for loop in loops:
                loop._cache.flush()
            work()


def _copy_overload(target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    def implementation(target: Any, at: Any, source: Any, start: Any, size: Any) -> None:
        _copy_memory(target, at, source, start, size)

    return implementation


@numba.extending.intrinsic  # type: ignore[untyped-decorator]
def _copy_memory(_: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """Copy bytes between arrays; nothing checks the bounds.

    Numba's own loop over bytes takes as long for a small record as everything else.
    """

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0])
        out_of = context.make_array(signature.args[2])(context, builder, arguments[2])
        to_address = builder.gep(to.data, [arguments[1]])
        from_address = builder.gep(out_of.data, [arguments[3]])
        cgutils.raw_memcpy(builder, to_address, from_address, arguments[4], 1)
        return context.get_dummy_value()

    index = types.intp
    return types.void(target, index, source, index, index), generate


def _word_at_overload(data: Any, at: Any) -> Any:
    def implementation(data: Any, at: Any) -> Any:
        return _load_word(data, at)

    return implementation


@numba.extending.intrinsic  # type: ignore[untyped-decorator]
def _load_word(_: Any, data: Any, at: Any) -> Any:
    """Load 8 bytes at any address; nothing checks the bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        inside = context.make_array(signature.args[0])(context, builder, arguments[0])
        word = context.get_value_type(types.int64)
        address = builder.gep(inside.data, [arguments[1]])
        return builder.load(builder.bitcast(address, word.as_pointer()), align=1)

    return types.int64(data, types.intp), generate


def _put_word_overload(out: Any, at: Any, word: Any) -> Any:
    def implementation(out: Any, at: Any, word: Any) -> Any:
        _store_word(out, at, word)

    return implementation


@numba.extending.intrinsic  # type: ignore[untyped-decorator]
def _store_word(_: Any, out: Any, at: Any, word: Any) -> Any:
    """Store 8 bytes at any address; nothing checks the bounds."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        inside = context.make_array(signature.args[0])(context, builder, arguments[0])
        address = builder.gep(inside.data, [arguments[1]])
        target = builder.bitcast(address, arguments[2].type.as_pointer())
        builder.store(arguments[2], target, align=1)
        return context.get_dummy_value()

    return types.void(out, types.intp, types.int64), generate


def _view_at_overload(address: Any, size: Any) -> Any:
    def implementation(address: Any, size: Any) -> Any:
        return numba.carray(_pointer(address), size)

    return implementation


@numba.extending.intrinsic  # type: ignore[untyped-decorator]
def _pointer(_: Any, address: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.inttoptr(arguments[0], cgutils.voidptr_t)

    return types.CPointer(types.uint8)(types.intp), generate  # type: ignore[attr-defined]


_REPLACEMENTS = {
    "copy": _copy_overload,
    "word_at": _word_at_overload,
    "put_word": _put_word_overload,
    "view_at": _view_at_overload,
}


def _cached(loop: Callable[..., Any]) -> Any:
    return numba.njit(cache=True, nogil=True)(loop)


@contextmanager
def _cache_in(folder: Path) -> Iterator[None]:
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder)
    try:
        yield
    finally:
        numba.config.CACHE_DIR = before


def _private_folder() -> Path:
    """Return a folder that only this user can write, because its files are executed.

    Raises `PermissionError` if another user has created it.
    """
    folder = Path(tempfile.gettempdir()) / f"lakelog-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    status = folder.lstat()
    is_private = stat.S_ISDIR(status.st_mode) and stat.S_IMODE(status.st_mode) & 0o022 == 0
    if status.st_uid != os.getuid() or not is_private:
        raise PermissionError(f"{folder} belongs to another user, or others can write it")
    return folder


@contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Hold a lock in Numba's cache folder.

    Numba creates the folder at its first write, which is later than the lock.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = os.open(folder / _LOCK, os.O_RDONLY | os.O_CREAT, 0o666)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)
