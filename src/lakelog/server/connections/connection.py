"""One client connection: frames in, responses out, both in the order of the requests.

Bytes are received into one buffer and requests are handled in place, as views of it, before more
is received. Responses leave through a `SendQueue`.

Requests are answered in order. A produce request may be handled while earlier ones still wait for
their acknowledgement; any other request waits its turn, so at most one of a connection's requests
is being worked on at a time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from struct import Struct

from lakelog.runtime.api import Disk, File, Net, Socket, Tasks
from lakelog.server.connections.limits import Limits
from lakelog.server.connections.receive_buffer import FRAME_SIZE, ReceiveBuffer
from lakelog.server.connections.reply import Reply, release
from lakelog.server.connections.request_budget import UNIT_SHIFT, Rank
from lakelog.server.connections.request_sink import CachedRequest, ProtocolViolation, RequestSink
from lakelog.server.connections.send_queue import SendQueue
from lakelog.server.connections.session import ClientSession, Sampling

_BUFFER_KEPT_MAX = 4 * 1024 * 1024
_UNSENT_MAX = 1024 * 1024
"""Bytes to send above which no request is handled: each response adds to them."""
_UNREAD_MAX = 8 * 1024 * 1024
"""Unsent bytes above which the broker counts as waiting for the peer (`awaited_bytes`)."""
_PENDING_MAX = 128
_FETCH = 1
_FRAME_HEAD = Struct(">ih")
_FRAME_HEAD_SIZE = _FRAME_HEAD.size
_REQUEST_SIZE_MIN = 8
_LONE_SIZE_MIN = FRAME_SIZE.size + _REQUEST_SIZE_MIN


class Connection:
    """One client's connection, made of parts; `sink` decides.

    `received` holds requests, `responses` sends responses, `session` describes the client.
    `cached_request` and `sampling` come from earlier requests; `admitted` is the
    generation of the admission in which the request was cached (`requests.admission`).
    """

    __slots__ = (
        "__weakref__",
        "_flushes_soon",
        "_frame_size_max",
        "_handling",
        "_has_unread",
        "_is_gone",
        "_is_new",
        "_iterations",
        "_memory",
        "_net",
        "_reading",
        "_sink",
        "_sock",
        "_stalled",
        "_tasks",
        "_unread",
        "_yielded",
        "admitted",
        "cached_request",
        "closed",
        "expect",
        "last_active",
        "pending",
        "received",
        "responses",
        "sampling",
        "session",
    )

    def __init__(
        self,
        sock: Socket,
        session: ClientSession,
        sink: RequestSink[Connection],
        net: Net,
        disk: Disk,
        tasks: Tasks,
        limits: Limits,
    ) -> None:
        self.session = session
        session.authentication.on_change = self._forget
        self.received = ReceiveBuffer(limits.memory)
        self.responses = SendQueue(self, sock, net, disk, tasks, limits.iterations.sending)
        self._sock = sock
        self._sink = sink
        self._net = net
        self._tasks = tasks
        self._frame_size_max = limits.frame_size_max
        self._memory = limits.memory
        self._unread = limits.unread
        self._iterations = limits.iterations
        self.pending: deque[Reply] = deque()
        """Requests that have not been answered, in the order of their responses."""
        self.expect: Callable[[Reply], None] = self.pending.append
        """Gives a reply the next place in the order of responses.

        The place is taken when the request begins. Kafka clients match responses by order, so a
        response that is ready early waits behind the others."""
        self._reading = False
        self._handling = False
        self._stalled = False
        """Whether received requests wait: for a loop iteration, for earlier responses, or for the
        peer."""
        self._yielded = False
        """Whether they wait for an iteration of the loop, or the connection is muted."""
        self._is_new = True
        self._is_gone = False
        self._has_unread = False
        self._flushes_soon = False
        """Whether queued replies leave in the next loop iteration, with those behind them."""
        self.closed = False
        self.last_active = 0.0
        self.admitted = 0
        self.cached_request: CachedRequest | None = None
        self.sampling = Sampling()

    def open(self) -> None:
        """Begin to receive requests."""
        self._set_reading(True)

    # Receiving

    def _on_readable(self) -> None:
        received = self.received
        end = received.end
        if end == len(received.buffer):
            try:
                has_capacity = received.free_capacity(self._resume_reading, stalled=self._stalled)
            except MemoryError as error:
                self.fail("a connection", error)
                return
            if not has_capacity:
                self._set_reading(False)
                return
            end = received.end
        try:
            size = self._sock.recv_into(received.view[end:] if end else received.view)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            size = 0  # a reset connection ends like a closed one
        if not size:
            self._on_gone()
            return
        # One read for each event of the socket: a client that sends without pause would otherwise
        # keep the loop from all others. The socket stays readable while bytes remain.
        received.end = end + size
        self._handle()

    def _handle(self) -> None:
        """Hand over the complete requests that may start now."""
        self._handling = True
        responses = self.responses
        try:
            if (
                self.received.start
                or self._stalled
                or responses.parts
                or self.pending
                or not self._take_lone()
            ):
                self._take_requests()
        except ProtocolViolation as violation:
            self._sink.on_violation(self, violation)
        except Exception as error:  # noqa: BLE001 - it ends this connection, and nothing else
            self.fail("a connection", error)
        finally:
            self._handling = False
        # Replies that became complete meanwhile were only queued (`on_reply`), so that the
        # responses to all these requests leave together.
        if (
            responses.parts or responses.is_blocked or (self._stalled and not self._yielded)
        ) and not self.closed:
            self.flush()

    def _take_lone(self) -> bool:
        """Hand over a Produce or Fetch request that is alone in the buffer, as most are.

        Its response may leave at once. Return False, with nothing done, for any other content of
        the buffer.
        """
        received = self.received
        end = received.end
        if end < _LONE_SIZE_MIN:
            return False
        size, api_key = _FRAME_HEAD.unpack_from(received.buffer)
        # Produce and Fetch are handled in place. Other APIs, and frames of a wrong size, take the
        # general way below, which also rejects them.
        if size != end - 4 or api_key > _FETCH or size > self._frame_size_max:
            return False
        iterations = self._iterations
        left = iterations.left
        if left <= 0 and iterations.is_over():
            self._yield()
            return True
        iterations.left = left - 1 - (size >> UNIT_SHIFT)
        responses, view = self.responses, received.view
        responses.is_lone = True
        self._sink.on_request(self, view[:end], 4, end, 1)
        responses.is_lone = False
        received.end = 0
        if len(view) > _BUFFER_KEPT_MAX or self._memory.is_short:
            received.drop()
        return True

    def _take_requests(self) -> None:
        if self._yielded:
            return
        received, responses = self.received, self.responses
        start, filled = received.start, received.end
        view = received.view[:filled]
        iterations, first = self._iterations, start
        share = budget = 0 if iterations.left <= 0 and iterations.is_over() else iterations.share
        while filled - start >= _FRAME_HEAD_SIZE and not self.closed:
            size, api_key = _FRAME_HEAD.unpack_from(view, start)
            if not _REQUEST_SIZE_MIN <= size <= self._frame_size_max:
                raise ProtocolViolation(
                    f"a request of {size} bytes (allowed: {_REQUEST_SIZE_MIN} to "
                    f"{self._frame_size_max}, see socket.request.max.bytes)"
                )
            end = start + FRAME_SIZE.size + size
            # `_must_wait` is asked only in a state in which it may say yes: this loop runs for
            # every request.
            if end > filled or (
                (self.pending or self._stalled or responses.unsent > _UNSENT_MAX)
                and self._must_wait(api_key)
            ):
                break
            if budget <= 0 or (api_key > _FETCH and not iterations.may_begin()):
                self._yield()
                break
            received.start = end
            handled, start = self._sink.on_request(self, view, start + 4, end, budget)
            received.start = start
            # A request of any other API ends the share: its size does not bound its cost.
            budget = budget - handled if api_key <= _FETCH else 0
        iterations.left -= share - budget + (start - first >> UNIT_SHIFT)
        if start == filled:
            received.start = received.end = 0
            if len(received.view) > _BUFFER_KEPT_MAX or self._memory.is_short:
                received.drop()

    def _yield(self) -> None:
        """Handle the next request in a later iteration of the loop, after other connections."""
        self._stalled = True
        if not self._yielded:
            self._yielded = True
            rank = Rank.NEW if self._is_new else Rank.ANSWERED
            self._iterations.wait(self._take_iteration, Rank.AHEAD if self.received.start else rank)

    def _take_iteration(self) -> None:
        self._yielded = self._stalled = False
        self._handle_waiting()

    def mute(self, duration_s: float) -> None:
        """Handle no request of the client for `duration_s` seconds (KIP-219).

        Responses are sent meanwhile; the throttled request is answered at once.
        """
        assert not self._yielded, (
            "a connection that handles a request does not wait for a loop iteration"
        )
        # As if the connection waited for its turn: until then no event of the socket and no reply
        # makes it handle a request.
        self._stalled = self._yielded = True
        self._tasks.call_later(duration_s, self._take_iteration)

    def _must_wait(self, api_key: int) -> bool:
        """Return whether the next request must wait: for its turn, or until replies are read."""
        if self._yielded:
            return True
        pending, unsent = self.pending, self.responses.unsent
        if not pending and unsent <= _UNSENT_MAX:
            self._stalled = False
        else:
            self._stalled = unsent > _UNSENT_MAX or not (
                self._sink.is_pipelined(api_key)
                and pending[-1].pipelined
                and len(pending) < _PENDING_MAX
            )
        return self._stalled

    # Answering

    def on_reply(self, reply: Reply) -> None:
        """Queue `reply`, which is complete, and the complete ones behind it.

        They wait for replies to earlier requests: a Kafka client matches responses by their order.
        """
        if self.closed:
            release(reply.parts)
            return
        self._is_new = False
        pending, responses, is_late = self.pending, self.responses, not self._handling
        if is_late and len(pending) == 1:
            responses.is_lone = True  # it may leave at once, as in `_take_lone`
        # Only from the front: a complete reply behind an incomplete one stays.
        while pending and (parts := pending[0].parts) is not None:
            pending.popleft()
            responses.send_reply(parts)
        if is_late:
            responses.is_lone = False
            self._send_late()

    def _send_late(self) -> None:
        """Send complete replies, and resume the requests that waited for them."""
        if self.responses.parts or self._has_unread:
            if not self.pending:
                self.flush()
            elif not self._flushes_soon:
                # One event often completes several replies, such as the fetch of a follower the
                # replies to many produce requests: one call sends them.
                self._flushes_soon = True
                self._tasks.call_soon(self._flush_late)
        if not self.received.unhandled_bytes:
            self._resume_reading()
        else:
            # In a later callback: the next request may complete a reply of another connection,
            # whose next request may complete one of a third, and so on.
            self._tasks.call_soon(self._handle_waiting)

    def _flush_late(self) -> None:
        self._flushes_soon = False
        if not self.closed:
            self.flush()

    def _handle_waiting(self) -> None:
        """Handle requests that had to wait."""
        if not self.closed and not self._handling:
            self._handle()
            self._resume_reading()

    def _resume_reading(self) -> None:
        if not self.closed and not self._is_gone:
            self._set_reading(True)

    def flush(self) -> None:
        """Send as much as the socket takes now; a failure closes the connection."""
        responses = self.responses
        if responses.is_held:
            self._report_unread()
            return
        try:
            responses.send_parts()
        except OSError as error:
            self._on_send_failed(error)
            return
        except Exception as error:  # noqa: BLE001 - as in `_handle`
            self.fail("a connection", error)
            return
        if responses.parts or self._has_unread:
            self._report_unread()
        if self._stalled and not (responses.parts or self.pending or self._yielded):
            # The stalled requests waited for responses, and all are sent now: no event of the
            # socket will resume them.
            self._tasks.call_soon(self._handle_waiting)

    def _report_unread(self) -> None:
        size = self.responses.unread_memory
        if size or self._has_unread:
            self._has_unread = size > 0
            self._unread.hold(self, size)

    def on_writable(self) -> None:
        """Send, and handle the requests that waited until the peer had read its responses."""
        self.flush()
        if not self.closed and self._stalled:
            self._handle()
        self._resume_reading()

    def _forget(self) -> None:
        """Drop the cached request: the client has another principal or state of authentication."""
        self.cached_request = None

    # Closing

    def _on_send_failed(self, error: OSError) -> None:
        file = self.responses.unreadable(error)
        if file is None:
            self._on_gone()
        else:
            self.on_unreadable(file, error)

    def on_unreadable(self, file: File, error: OSError) -> None:
        """Close, because a part of a response is lost; the partition of the file fails."""
        self.close()
        # Later: the failure answers waiting requests, and the caller may be handling one.
        self._tasks.call_soon(partial(self._sink.on_unreadable, file, error))

    def _on_gone(self) -> None:
        """Close a connection whose peer disconnected, in a later loop iteration if many do at
        once."""
        if self._is_gone:
            return
        iterations = self._iterations
        iterations.left -= 1
        if iterations.left < 0 and iterations.is_over():
            self._is_gone = True
            self._set_reading(False)
            self.responses.pause()
            iterations.wait(self.close, Rank.AHEAD)
        else:
            self.close()

    def fail(self, what: str, error: Exception) -> None:
        """Close the connection because of `error`, a bug or a lack of memory, while doing `what`.

        Raises nothing; the sink logs the error.
        """
        self._sink.on_failure(self, what, error)

    def close(self) -> None:
        """Close the socket, release unsent ranges of files, and abandon waiting requests.

        Closing again has no effect.
        """
        if self.closed:
            return
        # First, so that a reply that one of these steps completes is released, not sent.
        self.closed = True
        self.session.authentication.on_change = None
        self._set_reading(False)
        self.responses.pause()
        self._sock.close()
        self.received.close()
        self.responses.close()
        # Its bytes are released at once: the share may be exceeded because of them, and the next
        # connection would be closed for that.
        self._unread.hold(self, 0)
        # A copy, and the original is empty before the first call: `on_abandon` may complete replies
        # of this connection.
        pending = list(self.pending)
        self.pending.clear()
        for reply in pending:
            release(reply.parts)
            if reply.parts is None and reply.on_abandon is not None:
                reply.on_abandon()
        self.cached_request = None
        self._sink.on_close(self, [reply for reply in pending if reply.on_abandon is not None])

    def drop_idle_buffer(self) -> None:
        """Give back the receive buffer, or most of it, if it holds little or nothing."""
        # While requests are handled, they are views of the buffer.
        if not self._handling:
            self.received.shrink()

    @property
    def awaited_bytes(self) -> int:
        """Bytes for which the broker waits: unread responses, or the rest of a request.

        Unread responses count once they block further requests. 0 while the broker does not wait
        for the peer.
        """
        unsent = self.responses.unsent
        # Less may lie in the buffers of a healthy connection with a slow network.
        if unsent > _UNREAD_MAX:
            return unsent
        return 0 if self._stalled or not self._reading else self.received.missing_bytes

    def _set_reading(self, reading: bool) -> None:
        if reading != self._reading:
            self._reading = reading
            self._net.on_readable(self._sock, self._on_readable if reading else None)
