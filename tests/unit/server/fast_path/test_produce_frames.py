from __future__ import annotations

import pytest

from lakelog.protocol.api import api_for
from lakelog.protocol.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from lakelog.server.fast_path.produce_frames import ProduceFrames
from lakelog.wire.framing import encode_request

MARK = b"\xabBATCH"


def frame(number: int, batch: bytes, *, version: int, client: str = "c", acks: int = 1) -> bytes:
    entries = [PartitionProduceData(index=0, records=batch)]
    topics = [TopicProduceData(name="orders", partition_data=entries)]
    request = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=topics)
    return b"".join(encode_request(api_for(ProduceRequest), version, number, client, request))


def frames(version: int) -> ProduceFrames:
    """Learn from a request, as a connection does."""
    whole = frame(0, MARK, version=version)[4:]
    at = whole.index(MARK)
    width = 1 if version >= 9 else 4
    return ProduceFrames(whole[: at - width], whole[at + len(MARK) :])


@pytest.mark.parametrize("version", [3, 8, 9, 12])
@pytest.mark.parametrize("size", [1, 126, 127, 128, 16_382, 16_383, 100_000])
def test_equal_requests_are_found_whatever_their_batches(version: int, size: int) -> None:
    sent = [bytes([number]) * size for number in range(3)]
    data = b"".join(frame(number, batch, version=version) for number, batch in enumerate(sent))
    end = 4 + int.from_bytes(data[:4], "big")
    numbers, batches, ends = frames(version).find(memoryview(data), 4, end, 10)
    assert numbers == [0, 1, 2]
    assert [bytes(batch) for batch in batches] == sent
    assert ends[-1] == len(data)


@pytest.mark.parametrize("version", [8, 12])
def test_at_most_so_many_are_found_and_an_incomplete_one_is_not(version: int) -> None:
    data = b"".join(frame(number, b"x" * 99, version=version) for number in range(3))
    size = len(data) // 3
    assert frames(version).find(memoryview(data), 4, size, 2)[0] == [0, 1]
    assert frames(version).find(memoryview(data)[:-1], 4, size, 9)[0] == [0, 1]


@pytest.mark.parametrize("version", [8, 12])
@pytest.mark.parametrize("change", [{"client": "d"}, {"acks": 0}])
def test_another_request_is_not_found(version: int, change: dict[str, object]) -> None:
    fields: dict[str, object] = {"version": version, **change}
    data = frame(1, b"x" * 99, **fields)  # type: ignore[arg-type]
    assert frames(version).find(memoryview(data), 4, len(data), 9)[0] == []
