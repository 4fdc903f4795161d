"""A disk in memory with injected failures, which loses unsynced data in a power failure.

After a power failure it has the state that the `Disk` contract guarantees: contents up to the last
`sync`, and names up to the last operation that a `sync_dir` covered. Names change in order, as in a
journalling file system, or separately in each folder. Given randomness, a power failure also keeps
some of the rest: later names, unsynced truncations, and unsynced writes, whole or torn at a sector.

It does not model time, permissions or a device that reports a sync too early.
"""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable
from pathlib import Path

from doubles.disk_faults import Fault, Faults, Operation
from doubles.disk_node import Node, resize
from lakelog.base.errors import is_shortage, lacks_descriptors
from lakelog.runtime.api import Buffer, Clock, File, Random


class DiskStopped(Exception):  # noqa: N818 - an event, not an error
    """The process was killed at this step. Not an `OSError`: no code may handle it."""


_Tree = dict[Path, Node | None]
"""All paths; a directory has no node."""
_MISSING = Node(modified_ms=0)


class MemoryFile:
    """A `lakelog.runtime.api.File`; it fails with EBADF after the process was killed."""

    def __init__(self, disk: MemoryDisk, path: Path, node: Node) -> None:
        self._disk = disk
        self._path = path
        self._node = node
        self._generation = disk.generation
        self._closed = False

    @property
    def path(self) -> Path:
        return self._path

    def fileno(self) -> int:
        return -1

    def size(self) -> int:
        self._check()
        return len(self._node.data)

    def read_at(self, offset: int, size: int) -> bytes:
        self._check()
        self._disk.step("read", self._path)
        return bytes(self._node.data[offset : offset + size])

    def write_at(self, offset: int, *data: Buffer) -> None:
        self._check()
        content = b"".join(data)
        allowed, error = self._disk.admit(self._path, offset + len(content), self._node)
        # A failed write may have written a part; the caller must cope with it.
        taken = content if error is None else content[: max(0, min(allowed - offset, len(content)))]
        if taken:
            self._store(offset, taken)
        if error is not None:
            raise error

    def _store(self, offset: int, content: bytes) -> None:
        node = self._node
        if len(node.data) < offset:
            node.data.extend(bytes(offset - len(node.data)))
        node.data[offset : offset + len(content)] = content
        node.changes.append((offset, content))
        node.modified_ms = self._disk.clock.wall_ms()

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.step("truncate", self._path)
        node = self._node
        resize(node.data, size)
        node.changes.append((size, None))

    def sync(self) -> None:
        self._check()
        self._disk.step("sync", self._path)
        self._node.durable = bytes(self._node.data)
        self._node.changes.clear()

    def close(self) -> None:
        self._closed = True

    def _check(self) -> None:
        if self._closed or self._generation != self._disk.generation:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), str(self._path))


class MemoryLock:
    """A `lakelog.runtime.api.Lock`; a kill of the process releases it."""

    def __init__(self, locks: set[Path], path: Path) -> None:
        self._locks = locks
        self._path = path

    def release(self) -> None:
        self._locks.discard(self._path)


class MemoryDisk:
    """A `lakelog.runtime.api.Disk`.

    Args:
        capacity: bytes of all files together; None is unlimited.
        names_in_order: whether a sync of one folder makes earlier names in others durable, too.
    """

    def __init__(
        self, clock: Clock, *, capacity: int | None = None, names_in_order: bool = True
    ) -> None:
        self.clock = clock
        self.capacity = capacity
        self._names_in_order = names_in_order
        self.generation = 0
        self.steps = 0
        """How many operations so far changed or synced something."""
        self.stop_at: int | None = None
        """The step at which the process dies with `DiskStopped`."""
        self._tree: _Tree = {Path("/"): None}
        self._durable: _Tree = dict(self._tree)
        self._journal: list[tuple[frozenset[Path], Callable[[_Tree], None]]] = []
        self.faults = Faults()
        self._locks: set[Path] = set()
        self._boots = 0
        self._files_made = 0
        self._on_failure: Callable[[], object] = tuple

    def watch(self, on_failure: Callable[[], object]) -> None:
        self._on_failure = on_failure

    def page_cache_id(self, path: Path) -> str:
        self._file(path)
        return f"boot {self._boots}"

    def file_id(self, path: Path) -> str:
        return f"file {self._file(path).number}"

    def inode(self, path: Path) -> int:
        return self._file(path).number

    # Failures

    def fail(
        self,
        operation: Operation,
        code: int,
        *,
        suffix: str = "",
        skip: int = 0,
        partial: int = 0,
        times: int = 1,
    ) -> None:
        """Let the next `times` operations of this kind fail with the errno `code`.

        Only paths that end in `suffix` count, and the first `skip` operations pass. A write stores
        its first `partial` bytes before it fails.
        """
        self.faults.add(Fault(operation, code, suffix, skip, partial, times))

    def lose_writes(self, path: Path) -> None:
        """Drop the unsynced writes of a file as if they were on the device.

        Linux marks pages clean after a failed write-back
        (https://wiki.postgresql.org/wiki/Fsync_Errors). Raises `FileNotFoundError`.
        """
        node = self._tree.get(path)
        if node is None:
            raise self._missing(path)
        node.changes.clear()

    def write_back(self) -> None:
        """Make everything durable, as an operating system does within some seconds."""
        for node in self._tree.values():
            if node is not None and node.changes:
                node.durable = bytes(node.data)
                node.changes.clear()
        self._durable = dict(self._tree)
        self._journal.clear()

    @property
    def is_sound(self) -> bool:
        """Whether no fault is to come, and no limit bounds the files."""
        return self.capacity is None and not self.faults.are_coming

    def forget_faults(self) -> None:
        """Cancel the failures that have not happened yet."""
        self.faults.forget()

    def flip(self, path: Path, bit: int) -> None:
        """Flip one bit of a file, on the device and in the page cache.

        Bit 0 is the lowest of the first byte. Raises `FileNotFoundError`.
        """
        self._file(path).flip(bit)

    def kill(self) -> None:
        """End the process: open files and locks are gone; the page cache stays."""
        self.generation += 1
        self.stop_at = None
        self._locks.clear()

    def crash(self, random: Random | None = None) -> None:
        """Cut the power. Without `random` all unsynced data is lost."""
        self.kill()
        self._boots += 1
        self._tree = self._left_by_crash(random)
        self._durable = dict(self._tree)
        self._journal.clear()

    def copy_after_kill(self) -> MemoryDisk:
        """Return another disk in the state that `kill` would leave; this one is unchanged."""
        tree = {path: node and node.copy(bytes(node.data)) for path, node in self._tree.items()}
        other = self._other(tree)
        other._boots = self._boots
        return other

    def copy_after_crash(self, random: Random | None = None) -> MemoryDisk:
        """Return another disk in the state that `crash` would leave; this one is unchanged."""
        return self._other(self._left_by_crash(random))

    def _other(self, tree: _Tree) -> MemoryDisk:
        other = MemoryDisk(self.clock, capacity=self.capacity, names_in_order=self._names_in_order)
        other._tree, other._durable = tree, dict(tree)
        other._boots = self._boots + 1
        other._files_made = self._files_made
        return other

    def _left_by_crash(self, random: Random | None) -> _Tree:
        tree = dict(self._durable)
        if random is not None:
            # Later names may survive, but never without the names before them.
            for _, change in self._journal[: random.below(len(self._journal) + 1)]:
                change(tree)
        left: _Tree = {}
        for path in sorted(tree):  # a folder before its contents
            if path.parent == path or path.parent in left:
                node = tree[path]
                left[path] = node and node.after_crash(random)
        return left

    def step(self, operation: Operation, path: Path) -> Fault | None:
        """Count an operation, and return the fault of a write.

        Raises `OSError` for a fault of any other operation, and `DiskStopped` at `stop_at`.
        """
        fault = self.faults.take(operation, path)
        # Reads change nothing, so a kill at a read equals a kill at the next change.
        if operation != "read":
            if self.stop_at is not None and self.steps >= self.stop_at:
                raise DiskStopped(f"{operation} {path}")
            self.steps += 1
        if fault is not None and operation != "write":
            error = fault.error(path)
            self._note(operation, error)
            raise error
        return fault

    def _note(self, operation: Operation, error: OSError) -> None:
        """Report a failure of the device to the watcher; a shortage is none."""
        passes = lacks_descriptors(error) if operation == "sync" else is_shortage(error)
        if operation in ("write", "truncate", "sync") and not passes:
            self._on_failure()

    def admit(self, path: Path, end: int, node: Node) -> tuple[int, OSError | None]:
        """Return how far a write may reach in the file, in bytes, and its error, if any.

        Raises `DiskStopped` at `stop_at`.
        """
        fault = self.step("write", path)
        if fault is not None:
            error = fault.error(path)
            self._note("write", error)
            return len(node.data) + fault.partial, error
        grown = max(0, end - len(node.data))
        if self.capacity is not None and self.used + grown > self.capacity:
            full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            return len(node.data) + max(0, self.capacity - self.used), full
        return end, None

    @property
    def used(self) -> int:
        """Bytes of all files together."""
        return sum(len(node.data) for node in self._tree.values() if node is not None)

    # Files

    def open(self, path: Path, *, create: bool = False) -> MemoryFile:
        node = self._tree.get(path)
        if node is None:
            if not create or path in self._tree:
                raise self._missing(path)
            self._need_dir(path.parent)
            self._files_made += 1
            node = new = Node(modified_ms=self.clock.wall_ms(), number=self._files_made)
            self._change(path, {path.parent}, lambda tree: tree.__setitem__(path, new))
        return MemoryFile(self, path, node)

    def content(self, path: Path) -> bytes:
        """Return the content of a file for a checker: no fault fails it, and it is no step."""
        return bytes(self._file(path).data)

    def read(self, path: Path) -> bytes:
        file = self.open(path)
        return file.read_at(0, file.size())

    def write_atomic(self, path: Path, data: Buffer) -> None:
        temporary = path.with_name(path.name + ".tmp")
        file = self.open(temporary, create=True)
        file.truncate(0)
        file.write_at(0, data)
        file.sync()
        file.close()
        self.rename(temporary, path)
        self.sync_dir(path.parent)

    def allocate(self, path: Path, size: int) -> None:
        file = self.open(path, create=True)
        file.write_at(0, bytes(size))
        file.close()

    def files(self) -> list[Path]:
        """Return the paths of all files."""
        return [path for path, node in self._tree.items() if node is not None]

    def exists(self, path: Path) -> bool:
        return path in self._tree

    def size(self, path: Path) -> int:
        return len(self._file(path).data)

    def modified_ms(self, path: Path) -> int:
        return self._file(path).modified_ms

    def set_modified_ms(self, path: Path, time_ms: int) -> None:
        self._file(path).modified_ms = time_ms

    # Names

    def list(self, path: Path) -> list[str]:
        self._need_dir(path)
        return sorted(child.name for child in self._tree if child.parent == path != child)

    def is_dir(self, path: Path) -> bool:
        return self._tree.get(path, _MISSING) is None

    def make_dirs(self, path: Path) -> None:
        for folder in (*reversed(path.parents), path):
            if folder not in self._tree:
                self._make_dir(folder)

    def _make_dir(self, folder: Path) -> None:
        self._change(folder, {folder.parent}, lambda tree: tree.__setitem__(folder, None))

    def rename(self, source: Path, target: Path) -> None:
        if source not in self._tree:
            raise self._missing(source)
        self._need_dir(target.parent)

        def move(tree: _Tree) -> None:
            if tree[source] is not None:
                tree[target] = tree.pop(source)
                return
            inside = [source, *(path for path in tree if source in path.parents)]
            moved = {target / path.relative_to(source): tree.pop(path) for path in inside}
            tree.update(moved)

        self._change(source, {source.parent, target.parent}, move)

    def remove(self, path: Path) -> None:
        self._file(path)
        self._change(path, {path.parent}, lambda tree: tree.__delitem__(path))

    def remove_tree(self, path: Path) -> None:
        self._need_dir(path)

        def cut(tree: _Tree) -> None:
            for inside in [other for other in tree if other == path or path in other.parents]:
                del tree[inside]

        self._change(path, {path.parent}, cut)

    def sync_dir(self, path: Path) -> None:
        self._need_dir(path)
        self.step("sync", path)
        covered = [number for number, entry in enumerate(self._journal, 1) if path in entry[0]]
        # A journal commits in order, so a sync also covers earlier names of other folders.
        end = max(covered, default=0)
        left = []
        for folders, change in self._journal[:end]:
            if self._names_in_order or path in folders:
                change(self._durable)
            else:
                left.append((folders, change))
        self._journal[:end] = left

    def _change(self, path: Path, folders: set[Path], change: Callable[[_Tree], None]) -> None:
        self.step("name", path)
        change(self._tree)
        self._journal.append((frozenset(folders), change))

    def _need_dir(self, path: Path) -> None:
        if not self.is_dir(path):
            raise self._missing(path)

    def _file(self, path: Path) -> Node:
        node = self._tree.get(path)
        if node is None:
            raise self._missing(path)
        return node

    def _missing(self, path: Path) -> FileNotFoundError:
        return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))

    # Locks, space and the page cache

    def lock(self, path: Path) -> MemoryLock:
        if path in self._locks:
            raise BlockingIOError(errno.EWOULDBLOCK, os.strerror(errno.EWOULDBLOCK), str(path))
        self.open(path, create=True)
        self._locks.add(path)
        return MemoryLock(self._locks, path)

    def mutex(self) -> threading.Lock:
        return threading.Lock()

    def space(self, path: Path) -> tuple[int, int]:
        total = self.capacity if self.capacity is not None else 1 << 40
        return total, total - self.used

    def is_resident(self, file: File, offset: int, size: int) -> bool:
        return True

    def read_resident(self, file: File, offset: int, size: int) -> Buffer | None:
        with contextlib.suppress(OSError):
            data = file.read_at(offset, size)
            return data if len(data) == size else None
        return None

    def read_ahead(self, file: File, offset: int, size: int) -> bool:
        file.read_at(offset, size)
        return False

    def drop_cached(self, file: File) -> None:
        node = self._tree.get(file.path)
        if node is not None and not node.changes:
            size = len(node.data)
            # After `lose_writes` the device has older bytes than the page cache.
            node.data[:] = node.durable
            resize(node.data, size)
