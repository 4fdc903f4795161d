from __future__ import annotations

import itertools

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakelog.network_client.errors import InvalidResponseError
from lakelog.network_client.frames import ResponseFrames
from lakelog.wire.schema import Buffer


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def feed(frames: ResponseFrames, data: Buffer) -> None:
    unfilled = frames.unfilled()
    assert len(unfilled) >= len(data)
    unfilled[: len(data)] = data
    frames.received(len(data))


def test_responses_are_found_in_any_portions() -> None:
    stream = framed(b"first") + framed(b"the second") + framed(b"last")
    for size in range(1, len(stream) + 1):
        frames, found = ResponseFrames(), []
        for begin in range(0, len(stream), size):
            feed(frames, stream[begin : begin + size])
            while (frame := frames.next()) is not None:
                found.append(frame)
        assert found == [b"first", b"the second", b"last"]


@settings(max_examples=25)
@given(
    sizes=st.lists(
        st.sampled_from([4, 100, 8191, 8192, 8193, 65_532, 65_536, 300_000]), max_size=6
    ),
    portions=st.lists(st.integers(1, 200_000), min_size=1),
)
def test_responses_stay_as_they_were_received(sizes: list[int], portions: list[int]) -> None:
    """The memory of a returned response is not received into again."""
    bodies = [bytes([number]) * size for number, size in enumerate(sizes)]
    stream = memoryview(b"".join(map(framed, bodies)))
    frames, found = ResponseFrames(), []
    for portion in itertools.cycle(portions):
        unfilled = frames.unfilled()
        data = stream[: min(portion, len(unfilled))]
        if not data:
            break
        feed(frames, data)
        stream = stream[len(data) :]
        while (frame := frames.next()) is not None:
            found.append(frame)
    assert found == bodies


def test_an_announced_size_makes_no_memory() -> None:
    frames = ResponseFrames()
    feed(frames, (50 << 20).to_bytes(4, "big"))
    assert frames.next() is None
    first = len(frames.unfilled())
    frames.received(first)
    assert first + len(frames.unfilled()) < 1 << 20


@pytest.mark.parametrize("size", [-1, 0, 3, 101, 2**31 - 1])
def test_an_invalid_size_is_rejected_before_the_rest_arrives(size: int) -> None:
    frames = ResponseFrames(100)
    feed(frames, size.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidResponseError, match=rf"a response of {size} bytes"):
        frames.next()


def test_memory_is_used_again_once_the_response_is_dropped() -> None:
    frames, stream = ResponseFrames(), framed(bytes(200_000))

    def respond() -> Buffer:
        at = 0
        while at < len(stream):
            unfilled = frames.unfilled()
            portion = stream[at : at + len(unfilled)]
            unfilled[: len(portion)] = portion
            frames.received(len(portion))
            at += len(portion)
        found = frames.next()
        assert found is not None
        return found

    def memory(frame: Buffer) -> int:
        assert isinstance(frame, memoryview)
        return id(frame.obj)

    respond()
    kept = respond()
    first = memory(kept)
    second = memory(respond())
    assert second != first, "the response is still in use"
    del kept
    assert memory(respond()) == second


def test_an_answer_of_an_http_server_is_recognised() -> None:
    frames = ResponseFrames()
    feed(frames, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    with pytest.raises(InvalidResponseError, match="the answer is HTTP, not Kafka's protocol"):
        frames.next()
