from __future__ import annotations

from lakelog.protocol.group_members import HeartbeatResponse
from lakelog.protocol.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from lakelog.server.requests.error_codes import codes_in


def test_codes_are_found_at_any_depth_and_zeros_are_not() -> None:
    assert list(codes_in(HeartbeatResponse(error_code=27))) == [27]
    assert not list(codes_in(HeartbeatResponse()))
    results = [PartitionProduceResponse(index=index, error_code=index) for index in range(4)]
    topic = TopicProduceResponse(name="orders", partition_responses=results)
    assert sorted(codes_in(ProduceResponse(responses=[topic, topic]))) == [1, 1, 2, 2, 3, 3]
