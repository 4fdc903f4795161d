from __future__ import annotations

from lakelog.protocol.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from lakelog.server.connections.reply import Reply, release, slices_of
from lakelog.storage.segments.handles import LogSlice
from memory_broker import MemoryBroker


class Sent:
    """A connection that notes its complete replies, and closes after the first of them."""

    closed = False

    def __init__(self) -> None:
        self.replies: list[Reply] = []

    def on_reply(self, reply: Reply) -> None:
        self.replies.append(reply)
        self.closed = True
        if reply.on_abandon is not None:
            reply.on_abandon()


def _slice(world: MemoryBroker) -> LogSlice:
    found = world.partition("orders").read(0, 1 << 20, min_one=True)
    assert isinstance(found, LogSlice)
    return found


def _readers(part: LogSlice) -> int:
    return part._handle.readers


def test_the_caller_is_called_before_the_connection_sends() -> None:
    """The connection may close as it sends: the request must have been counted by then."""
    sent = Sent()
    reply, order = Reply(sent, pipelined=False), list[int]()
    reply.on_complete = lambda done: order.append(len(sent.replies))
    reply.complete([b"a"])
    assert (order, sent.replies, reply.parts) == ([0], [reply], [b"a"])


def test_a_complete_reply_is_never_abandoned() -> None:
    """A fetch would otherwise be cancelled in the purgatory that it has left."""
    sent, abandoned = Sent(), list[int]()
    reply = Reply(sent, pipelined=True)
    reply.on_abandon = lambda: abandoned.append(1)
    reply.complete([])
    assert sent.closed and not abandoned


def test_every_file_range_of_a_response_is_found(world: MemoryBroker) -> None:
    """A range that is not found keeps the file of a deleted segment open."""
    world.create("orders")
    world.append("orders")
    first, second = _slice(world), _slice(world)
    before = _readers(first)
    partitions = [PartitionData(partition_index=n, records=r) for n, r in enumerate([first, b"x"])]
    topics = [
        FetchableTopicResponse(topic="a", partitions=partitions),
        FetchableTopicResponse(topic="b", partitions=[PartitionData(records=second)]),
    ]
    found = slices_of(FetchResponse(responses=topics))
    assert found == [first, second]
    assert slices_of(FetchResponse()) == slices_of(None) == []
    release([b"head", *found, memoryview(b"tail")])
    assert _readers(first) == before - 2


def test_a_reply_without_parts_releases_nothing() -> None:
    release(None)
    release([])
