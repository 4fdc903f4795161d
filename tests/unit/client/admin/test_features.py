from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode
from lakelog.client.admin.features import Feature, Features
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError
from lakelog.protocol.cluster import (
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from lakelog.protocol.connections import (
    ApiVersionsRequest,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)
from scripted_broker import ScriptedBroker


@pytest.fixture
def features(broker: ScriptedBroker, cluster: Cluster) -> Features:
    versions = broker.api_versions(ApiVersionsRequest())
    versions.finalized_features = [
        FinalizedFeatureKey(name="t", max_version_level=2, min_version_level=2)
    ]
    versions.supported_features = [
        SupportedFeatureKey(name="t", min_version=0, max_version=2),
        SupportedFeatureKey(name="g", min_version=1, max_version=1),
    ]
    broker.on(ApiVersionsRequest, versions)
    return Features(cluster)


def test_features_have_their_finalized_levels(features: Features) -> None:
    assert features.levels() == {"t": 2}


def test_each_broker_is_asked_for_the_levels_that_it_supports(features: Features) -> None:
    group, transactions = features.describe()
    (node,) = group.supported
    assert group == Feature("g", 0, {node: (1, 1)})
    assert (transactions.level, transactions.lowest, transactions.highest) == (2, 0, 2)


def test_all_brokers_limit_the_levels() -> None:
    feature = Feature("t", 1, {1: (0, 2), 2: (1, 3)})
    assert (feature.lowest, feature.highest) == (1, 2)
    assert Feature("t", 1, {1: (0, 2)}, lacking=(2,)).highest == 0


def test_a_change_names_its_kind(broker: ScriptedBroker, features: Features) -> None:
    broker.on(UpdateFeaturesRequest, UpdateFeaturesResponse())
    features.update({"t": 2}, {"g": 1}, validate_only=True)
    features.update({}, {"g": 1}, is_unsafe=True)
    checked, made = broker.asked(UpdateFeaturesRequest)
    kinds = [(each.feature, each.upgrade_type) for each in checked.feature_updates]
    assert kinds == [("t", 1), ("g", 2)]
    assert checked.validate_only and not made.validate_only
    assert made.feature_updates[0].upgrade_type == 3


@pytest.mark.parametrize("in_row", [False, True])
def test_a_refusal_has_the_text_of_the_broker(
    in_row: bool, broker: ScriptedBroker, features: Features
) -> None:
    """Kafka before version 2 of the API has it in the results."""
    code = ErrorCode.INVALID_UPDATE_VERSION
    row = UpdatableFeatureResult(feature="t", error_code=code, error_message="too high")
    response = UpdateFeaturesResponse(error_code=code, error_message="too high")
    if in_row:
        response = UpdateFeaturesResponse(results=[row])
        versions = broker.api_versions(ApiVersionsRequest())
        next(each for each in versions.api_keys if each.api_key == 57).max_version = 1
        broker.on(ApiVersionsRequest, versions)
    broker.on(UpdateFeaturesRequest, response)
    with pytest.raises(ClientError, match="too high") as caught:
        features.update({"t": 9}, {})
    assert caught.value.code is code
