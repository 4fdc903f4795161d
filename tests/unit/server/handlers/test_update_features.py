from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.protocol.cluster import FeatureUpdateKey, UpdateFeaturesRequest
from lakelog.protocol.connections import ApiVersionsRequest
from lakelog.server.handlers import api_versions
from lakelog.server.handlers.update_features import handle
from memory_broker import MemoryBroker

TV = "transaction.version"


def _request(level: int, **fields: object) -> UpdateFeaturesRequest:
    update = FeatureUpdateKey(feature=TV, max_version_level=level)
    for name, value in fields.items():
        setattr(update, name, value)
    return UpdateFeaturesRequest(feature_updates=[update])


def _levels(world: MemoryBroker) -> tuple[int, dict[str, int]]:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = world.ask(api_versions.handle, request, 4)
    levels = {each.name: each.max_version_level for each in response.finalized_features}
    return response.finalized_features_epoch, levels


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_downgrade_is_finalized_and_clients_learn_of_it(
    version: int, world: MemoryBroker
) -> None:
    epoch, levels = _levels(world)
    assert levels[TV] == 2
    fields = {"allow_downgrade": True} if version == 0 else {"upgrade_type": 2}
    response = world.ask(handle, _request(1, **fields), version)
    assert not response.error_code
    assert [each.feature for each in response.results] == ([TV] if version < 2 else [])
    later, levels = _levels(world)
    assert levels[TV] == 1 and later > epoch


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_rejected_request_has_a_code_and_a_text(version: int, world: MemoryBroker) -> None:
    response = world.ask(handle, _request(9), version)
    assert response.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert "transaction.version=9" in (response.error_message or "")
    assert _levels(world)[1][TV] == 2


def test_a_validation_changes_nothing(world: MemoryBroker) -> None:
    request = _request(1, upgrade_type=2)
    request.validate_only = True
    assert not world.ask(handle, request, 1).error_code
    assert _levels(world)[1][TV] == 2
