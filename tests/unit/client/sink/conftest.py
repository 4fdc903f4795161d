from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakelog.protocol.commit_sets import FEATURE
from lakelog.protocol.connections import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from scripted_broker import ScriptedBroker


@pytest.fixture
def sinks() -> Iterator[ScriptedBroker]:
    """A broker with commit sets, and the topic `orders` of two partitions."""
    with ScriptedBroker() as broker:

        def with_feature(request: ApiVersionsRequest) -> ApiVersionsResponse:
            response = broker.api_versions(request)
            row = SupportedFeatureKey(name=FEATURE, min_version=1, max_version=1)
            response.supported_features = [row]
            return response

        broker.on(ApiVersionsRequest, with_feature)
        yield broker
