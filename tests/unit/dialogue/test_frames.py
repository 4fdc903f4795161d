from __future__ import annotations

import pytest

from lakelog.dialogue.errors import InvalidResponseError
from lakelog.dialogue.frames import ResponseFrames


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def test_responses_are_found_in_any_portions() -> None:
    stream = framed(b"first") + framed(b"the second") + framed(b"last")
    for size in range(1, len(stream) + 1):
        frames, found = ResponseFrames(), []
        for begin in range(0, len(stream), size):
            frames.add(stream[begin : begin + size])
            while (frame := frames.next()) is not None:
                found.append(frame)
        assert found == [b"first", b"the second", b"last"]


@pytest.mark.parametrize("size", [-1, 0, 3, 101, 2**31 - 1])
def test_an_invalid_size_is_rejected_before_the_rest_arrives(size: int) -> None:
    frames = ResponseFrames(100)
    frames.add(size.to_bytes(4, "big", signed=True))
    with pytest.raises(InvalidResponseError, match=rf"a response of {size} bytes"):
        frames.next()
