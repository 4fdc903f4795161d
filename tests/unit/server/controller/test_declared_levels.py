"""The controller asks brokers for levels that their registrations do not have."""

from __future__ import annotations

from typing import Any

from lakelog.metadata.features import METADATA_VERSION, SUPPORTED, UNDECLARED, SupportedLevels
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerFenced, BrokerRecord
from lakelog.protocol.connections import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from lakelog.server.controller.declared_levels import DeclaredLevels
from lakelog.server.inter_broker.exchange import PeerTimedOutError
from virtual_time import run_in_virtual_time


class OtherBroker:
    def __init__(self, **levels: tuple[int, int]) -> None:
        self._levels = levels

    async def request(self, message: ApiVersionsRequest, *, timeout_s: float) -> Any:
        if not self._levels:
            raise PeerTimedOutError("silent")
        rows = [
            SupportedFeatureKey(name=name.replace("_", "."), min_version=low, max_version=high)
            for name, (low, high) in self._levels.items()
        ]
        return ApiVersionsResponse(supported_features=rows)


def levels_of(
    image: MetadataImage, peers: dict[int, OtherBroker]
) -> dict[tuple[int, int], tuple[SupportedLevels, ...]]:
    found: Any = peers

    async def main(_: object) -> dict[tuple[int, int], tuple[SupportedLevels, ...]]:
        return await DeclaredLevels(1, found.get).of(image)

    return run_in_virtual_time(main)


def image_of(*brokers: int, features: tuple[SupportedLevels, ...] = ()) -> MetadataImage:
    records = [
        BrokerRecord(number, bytes([number]) * 16, 7, (), None, features=features)
        for number in brokers
    ]
    return MetadataImage().apply_all(records, 1)


def test_running_brokers_are_asked() -> None:
    peers = {2: OtherBroker(lakelog_metadata_version=(1, 3)), 3: OtherBroker(), 5: OtherBroker()}
    image = image_of(1, 2, 3, 4, 5).apply(BrokerFenced(5, 7))
    found = levels_of(image, peers)
    assert found.keys() == {(1, 7), (2, 7)}, "broker 3 is silent, 4 has no address, 5 is fenced"
    assert found[1, 7] == SUPPORTED
    levels = {each.name: each for each in found[2, 7]}
    assert levels[METADATA_VERSION] == SupportedLevels(METADATA_VERSION, 1, 3)
    older = {each.name: each for each in UNDECLARED}
    assert levels["group.version"] == older["group.version"], "it does not name every level"


def test_registered_levels_count() -> None:
    assert levels_of(image_of(1, 2, features=SUPPORTED), {}) == {}
