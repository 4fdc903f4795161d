"""The responses of a connection: bytes and ranges of segment files, in the order of its requests.

A range is sent by `sendfile` if the page cache holds it. Otherwise a thread reads it first.
"""

from __future__ import annotations

import errno
from collections import deque
from collections.abc import Sequence
from functools import partial
from typing import Any, Protocol

from lakelog.runtime.api import Buffer, Disk, File, Net, Socket, Tasks
from lakelog.server.connections.reply import Part, release
from lakelog.server.connections.request_budget import SMALL, SendBudget
from lakelog.storage.segments.handles import LogSlice

SEND_SIZE_MAX = 1024 * 1024
"""Bytes sent in one callback, so that one fast reader cannot hold the loop."""
_COLD_SEND_MAX = 256 * 1024
"""The same for data that came from the device, which is slower anyway."""
_FOLLOWING = 64 * 1024
"""Bytes behind a range that are read with it: the next fetch needs the next batch header."""
_SEQUENCE_SIZE = 4 * 1024 * 1024
"""Bytes that a thread reads at a time for a client that reads in sequence."""
_COLD_FOR = 32 * 1024 * 1024
"""Bytes that a thread reads first once it had to wait for the device.

The kernel marks a page of its readahead window, often of 8 MiB. Touching that page reads the next
window, which takes up to milliseconds, although the page cache looks filled.
"""
_SLICE_MEMORY = 512
"""Bytes that a queued range takes whatever its size: its data stays in the file."""
_READ_MAX = 64 * 1024
"""Bytes that are read at a time for a socket that does not send files."""
_COPY_MAX = 32 * 1024
"""Largest slice, in bytes, that is copied between the bytes around it: cheaper than a call."""


_OF_FILES = frozenset({errno.EIO, errno.ENODATA, errno.EBADMSG, errno.ESTALE})
"""Errors of a device or of its file system, which no socket has."""


class Sender(Protocol):
    """The connection whose responses a queue sends."""

    def on_writable(self) -> None:
        """Continue: the socket has capacity, or it is the queue's turn."""
        ...

    def flush(self) -> None:
        """Send as much as can be sent."""
        ...

    def on_unreadable(self, file: File, error: OSError) -> None:
        """Close, and have the failure of the log of this file reported."""
        ...

    def close(self) -> None: ...


def _is_of_file(error: OSError) -> bool:
    """Return whether `sendfile` has failed because of the file, not because of the socket.

    Errors of TLS have numbers of their own: that of `ssl.SSLSyscallError` equals EIO.
    """
    return type(error) is OSError and error.errno in _OF_FILES


def _send_copy(sock: Socket, file: File, position: int, count: int) -> int:
    """Send a range of `file`; return the bytes that the socket took.

    For a socket that encrypts (TLS): it cannot have the kernel send the file.
    """
    return sock.send(file.read_at(position, min(count, _READ_MAX)))


class SendQueue:
    """The responses of one connection.

    `parts` has not been sent, except the first `_slice_sent` bytes of its first slice; `unsent` is
    its size. Nothing is sent while `is_held`: a thread reads the next range (`_warming`), or other
    connections have their turn first (`_awaits_iteration`). A thread must read the next `_cold`
    bytes of files before they are sent; `_warm` is the range that it has read last, and `_is_fresh`
    if it has done so just now. While `is_lone`, the request being answered is the connection's only
    one.
    """

    __slots__ = (
        "_awaits_iteration",
        "_cold",
        "_disk",
        "_is_fresh",
        "_net",
        "_send_file",
        "_sender",
        "_sending",
        "_slice_sent",
        "_sock",
        "_tasks",
        "_warm",
        "_warming",
        "is_blocked",
        "is_lone",
        "parts",
        "unsent",
    )

    def __init__(
        self, sender: Sender, sock: Socket, net: Net, disk: Disk, tasks: Tasks, sending: SendBudget
    ) -> None:
        self._sender: Sender | None = sender
        """None once the connection is closed."""
        self._sock = sock
        self._net = net
        self._send_file = net.send_file if sock.sends_files else _send_copy
        self._disk = disk
        self._tasks = tasks
        self._sending = sending
        self._awaits_iteration = False
        self.parts: deque[Part] = deque()
        self.unsent = 0
        self._slice_sent = 0
        self._cold = 0
        self._warm: tuple[File | None, int, int] = (None, 0, 0)
        self._is_fresh = False
        self.is_blocked = False
        """Whether the queue waits until the socket has capacity."""
        self._warming = False
        self.is_lone = False

    @property
    def is_held(self) -> bool:
        """Whether nothing is sent until a thread or a loop iteration calls back."""
        return self._warming or self._awaits_iteration

    def queue(self, data: Buffer) -> None:
        """Append bytes of the next response.

        They are sent together with bytes that are queued already.
        """
        self.unsent += len(data)
        out = self.parts
        # Small responses of one loop iteration are joined, so that they need one system call. A
        # `memoryview` at the end is the rest of a part that was sent in pieces, and is not
        # extended.
        if out and type(last := out[-1]) is bytearray:
            last += data
        else:
            out.append(data if type(data) is bytearray else bytearray(data))

    def send(self, data: Buffer) -> None:
        """As `queue`; the response to a lone request leaves at once, as far as there is capacity.

        A failure of the socket closes the connection; nothing is raised.
        """
        if self.is_lone and not self.parts:
            try:
                data = data[self._sock.send(data) :]
            except (BlockingIOError, InterruptedError):
                pass
            except OSError as error:
                self._fail(error)
                return
        if data:
            self.queue(data)

    def send_reply(self, parts: Sequence[Part]) -> None:
        """As `send`, for the parts of one response: they leave together."""
        if len(parts) == 3:
            head, records, tail = parts
            if isinstance(records, LogSlice):
                assert not isinstance(head, LogSlice) and not isinstance(tail, LogSlice)
                self.send_slice(records, head, tail)
                return
        is_small = len(parts) == 1 and len(parts[0]) <= SMALL
        for part in parts:
            if isinstance(part, LogSlice):
                self.send_slice(part)
            elif is_small:
                self.send(part)
            else:
                self.queue(part)

    def send_slice(self, part: LogSlice, head: Buffer = b"", tail: Buffer = b"") -> None:
        """As `send`, for a range of a file and the bytes around it.

        The queue releases `part` when it is sent or discarded.
        """
        # For a small range a copy costs less than the second system call of `sendfile`. The read
        # also shows whether the range is resident, without a probe.
        size = part.size
        if size <= _COPY_MAX:
            data = self._disk.read_resident(part.file, part.position, size)
            if data is not None:
                part.release()
                self.send(b"".join((head, data, tail)))
                return
        # A range beyond the budget waits in the queue for the connection's turn. Sending a part of
        # it now would overtake connections that wait.
        elif (
            self.is_lone
            and part.is_resident
            and self._cold <= 0
            and size <= SEND_SIZE_MAX
            and size <= self._sending.left
            and not self.parts
        ):
            self._send_at_once(part, size, head, tail)
            return
        self._queue_slice(part, head, tail)

    def _queue_slice(self, part: LogSlice, head: Buffer, tail: Buffer) -> None:
        if part.is_resident is False:
            self._cold = max(self._cold, 1)  # one cold byte is enough: a thread reads it first
        if head:
            self.queue(head)
        self.unsent += part.size
        self.parts.append(part)
        if tail:
            self.queue(tail)

    def _send_at_once(self, part: LogSlice, size: int, head: Buffer, tail: Buffer) -> None:
        # `sent` counts from the start of the range: it is negative while bytes of `head` are left.
        sock, sent = self._sock, -len(head)
        try:
            # MSG_MORE: the kernel holds the head back, so that it shares a packet with the range.
            sent += sock.send(head, self._net.MSG_MORE)
            if sent == 0:
                sent = self._send_file(sock, part.file, part.position, size)
                self._sending.spend(sent)
                if sent == size and tail:
                    tail = tail[sock.send(tail) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            part.release()
            self._fail(error, part.file)
            return
        if sent < 0:
            self._queue_slice(part, head[sent:], tail)
            return
        if sent == size:
            part.release()
        else:
            self.unsent += size - sent
            self._slice_sent = sent
            self.parts.append(part)
        if tail:
            self.queue(tail)

    def send_parts(self) -> None:
        """Send as much as the peer takes now, up to `SEND_SIZE_MAX` bytes.

        Raises `OSError` if the peer is gone, or if a file is shorter than its range.
        """
        out, before = self.parts, self.unsent
        # Data that a thread has just read may be dropped from the page cache again before it is
        # sent. A short piece bounds how long the loop then waits for the device.
        budget = _COLD_SEND_MAX if self._cold > 0 else SEND_SIZE_MAX
        if before > SMALL:
            if self._sending.left <= 0:
                self._wait_for_iteration()
                return
            budget = min(budget, self._sending.left)
        try:
            while out and budget > 0:
                head = out[0]
                if isinstance(head, LogSlice):
                    sent = self._send_slice(head, budget)
                    if sent is None:
                        return
                else:
                    # Without MSG_MORE the head of a response would leave in a packet of its own,
                    # and the range behind it would wait for the acknowledgement (Nagle).
                    sent = self._sock.send(head, self._net.MSG_MORE if len(out) > 1 else 0)
                    if sent == len(head):
                        out.popleft()
                    else:
                        out[0] = memoryview(head)[sent:]
                budget -= sent
                self.unsent -= sent
        except (BlockingIOError, InterruptedError):
            pass
        if before > SMALL:
            self._sending.spend(before - self.unsent)
        if self.is_blocked or out:
            self._set_blocked(bool(out))

    def _wait_for_iteration(self) -> None:
        self._awaits_iteration = True
        self._set_blocked(False)
        self._sending.wait(self._on_iteration)

    def _on_iteration(self) -> None:
        self._awaits_iteration = False
        if self._sender is not None:
            self._sender.on_writable()

    def _send_slice(self, head: LogSlice, most: int) -> int | None:
        """Return the bytes sent, or None if a thread must read the range first."""
        position, rest = head.position + self._slice_sent, head.size - self._slice_sent
        count = min(rest, most)
        if not self._may_send(head.file, position, count):
            self._read_first(head, position, min(rest, SEND_SIZE_MAX))
            return None
        self._is_fresh = False
        sent = self._send_file(self._sock, head.file, position, count)
        if not sent:
            raise OSError("the segment ends before its index says")
        # Only bytes that were sent count: the allowance ends with the data for which a thread is
        # necessary, not with the number of attempts.
        self._cold -= sent
        self._slice_sent += sent
        if self._slice_sent == head.size:
            self._slice_sent = 0
            self.parts.popleft()
            head.release()
        return sent

    def _may_send(self, file: File, position: int, count: int) -> bool:
        """Return whether the loop will not wait for the device.

        A range that a thread has just read is not looked up again: where memory is short, the page
        cache might drop it each time, and it would never be sent.
        """
        if self._cold > 0:
            warm, start, end = self._warm
            if file is not warm or position < start or position + count > end:
                return False
        return self._is_fresh or self._disk.is_resident(file, position, count)

    def _read_first(self, head: LogSlice, position: int, count: int) -> None:
        """Have a thread read a range that the loop then sends.

        The first to touch a page waits for the device, for up to tens of milliseconds, and triggers
        the kernel's readahead; so that must be the thread. For a client that reads in sequence it
        reads more, but not so much that writers have to wait for the device.
        """
        # Until the thread is done nothing is sent, also nothing that is queued behind the range:
        # responses keep their order.
        self._warming = True
        self._set_blocked(False)
        file, start, end = self._warm
        follows = file is head.file and start <= position <= end
        size = max(count, _SEQUENCE_SIZE if follows else 0)
        # A hold of its own: the connection may close, and release its range, while the thread
        # still reads the file.
        held = head.beside(position, size + _FOLLOWING)
        try:
            work = self._tasks.offload(
                "read", lambda: self._disk.read_ahead(held.file, held.position, held.size)
            )
        except BaseException:
            held.release()
            raise
        work.add_done_callback(partial(self._on_read, held, size))

    def _on_read(self, held: LogSlice, size: int, work: Any) -> None:
        self._warm = held.file, held.position, held.position + size
        held.release()
        sender = self._sender
        if sender is None:  # closed meanwhile
            return
        self._warming = False
        self._is_fresh = True
        error = work.exception()
        if isinstance(error, OSError):
            sender.on_unreadable(held.file, error)
            return
        if error is not None:
            sender.close()
            return
        if work.result():
            self._cold = _COLD_FOR
        sender.flush()

    def unreadable(self, error: OSError) -> File | None:
        """Return the file that `send_parts` could not read, None if `error` is of the socket."""
        head = self.parts[0] if self.parts else None
        return head.file if isinstance(head, LogSlice) and _is_of_file(error) else None

    def pause(self) -> None:
        """Wait for the socket no longer."""
        self._set_blocked(False)

    def _fail(self, error: OSError, file: File | None = None) -> None:
        """Close the connection. file: which was being sent, and may be at fault."""
        sender = self._sender
        if sender is None:
            return
        if file is not None and _is_of_file(error):
            sender.on_unreadable(file, error)
        else:
            sender.close()

    def close(self) -> None:
        """Discard the unsent parts; nothing is sent any more."""
        self._sender = None
        release(list(self.parts))
        self.parts.clear()

    @property
    def unread_memory(self) -> int:
        """Bytes of memory of the unsent responses; a range of a file takes `_SLICE_MEMORY`."""
        if not self.unsent:
            return 0
        return sum(
            _SLICE_MEMORY if isinstance(part, LogSlice) else len(part) for part in self.parts
        )

    def _set_blocked(self, blocked: bool) -> None:
        if blocked != self.is_blocked:
            self.is_blocked = blocked
            sender = self._sender
            assert sender is not None
            self._net.on_writable(self._sock, sender.on_writable if blocked else None)
