"""Finalized levels: which changes the controller accepts, and which brokers may join."""

from __future__ import annotations

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.features import (
    FeatureUpdate,
    UpgradeType,
    check_supported,
    plan_update_features,
)
from lakelog.metadata.features import METADATA_VERSION, SUPPORTED, SupportedLevels
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import BrokerFenced, BrokerRecord, FeatureRecord

UP, SAFE, UNSAFE = UpgradeType
TV = "transaction.version"


def _image(*brokers: tuple[SupportedLevels, ...]) -> MetadataImage:
    records = [
        BrokerRecord(number, bytes([number]) * 16, 1, (), None, features=features)
        for number, features in enumerate(brokers, 1)
    ]
    return MetadataImage().apply_all(records, 1)


def test_a_level_that_all_brokers_support_is_finalized() -> None:
    image = _image(SUPPORTED, SUPPORTED)
    updates = [FeatureUpdate(METADATA_VERSION, 2, UP), FeatureUpdate(TV, 1, SAFE)]
    plan = plan_update_features(image, updates)
    image = image.apply_all(plan.records, 2)
    assert image.feature_levels == {"group.version": 1, METADATA_VERSION: 2, TV: 1}
    assert plan_update_features(image, updates).records == ()
    assert MetadataImage().apply_all(image.to_records(), 2) == image


def test_a_validation_changes_nothing() -> None:
    update = FeatureUpdate(METADATA_VERSION, 2, UP)
    assert plan_update_features(_image(SUPPORTED), [update], validate_only=True).records == ()


E = ErrorCode


@pytest.mark.parametrize(
    ("update", "text"),
    [
        (FeatureUpdate("metadata.version", 25, UP), "is no feature"),
        (FeatureUpdate(METADATA_VERSION, 5, UP), "supported: 1 to 4"),
        (FeatureUpdate(TV, -1, UNSAFE), "supported: 0 to 2"),
        (FeatureUpdate("group.version", 0, SAFE), "supported: 1 to 1"),
        (FeatureUpdate(TV, 1, UP), "a downgrade"),
        (FeatureUpdate(TV, 1, 4), "unknown upgrade type 4"),
        (FeatureUpdate(METADATA_VERSION, 1, UNSAFE), "cannot be lowered"),
    ],
)
def test_a_level_that_cannot_be_finalized_is_rejected(update: FeatureUpdate, text: str) -> None:
    image = _image(SUPPORTED).apply(FeatureRecord(METADATA_VERSION, 2))
    with pytest.raises(KafkaError, match=text) as caught:
        plan_update_features(image, [update])
    assert caught.value.code is E.INVALID_UPDATE_VERSION


def test_a_registered_broker_without_support_is_named() -> None:
    """It registered by an older version of lakelog, which declares no levels."""
    with pytest.raises(KafkaError, match="broker 2 does not support") as caught:
        plan_update_features(_image(SUPPORTED, ()), [FeatureUpdate(METADATA_VERSION, 2, UP)])
    assert caught.value.code is E.INVALID_UPDATE_VERSION


def test_a_broker_that_has_declared_its_levels_since_counts() -> None:
    """Its registration could not have them before `lakelog.metadata.version` 2."""
    image, update = _image(SUPPORTED, ()), [FeatureUpdate(METADATA_VERSION, 2, UP)]
    assert plan_update_features(image, update, {(2, 1): SUPPORTED}).records
    with pytest.raises(KafkaError, match="broker 2 does not support"):
        plan_update_features(image, update, {(2, 0): SUPPORTED})  # an earlier process


def test_a_broker_that_is_down_has_to_be_started_or_unregistered() -> None:
    image = _image(SUPPORTED, ()).apply(BrokerFenced(2, 1))
    with pytest.raises(KafkaError, match=r"broker 2 does not .* it does not run; start it"):
        plan_update_features(image, [FeatureUpdate(METADATA_VERSION, 2, UP)])


def test_levels_are_recorded_only_where_brokers_can_read_them() -> None:
    image = _image(SUPPORTED)
    lower = FeatureUpdate(TV, 1, SAFE)
    with pytest.raises(KafkaError, match=r"levels need lakelog.metadata.version=2") as caught:
        plan_update_features(image, [lower])
    assert caught.value.code is E.INVALID_UPDATE_VERSION
    assert plan_update_features(image, [lower, FeatureUpdate(METADATA_VERSION, 2, UP)]).records


def test_a_request_without_features_changes_nothing() -> None:
    assert plan_update_features(_image(SUPPORTED), []).records == ()


def test_of_several_levels_of_a_feature_the_last_one_counts() -> None:
    image = _image(SUPPORTED).apply(FeatureRecord(METADATA_VERSION, 1))
    levels = [FeatureUpdate(METADATA_VERSION, 9, UP), FeatureUpdate(METADATA_VERSION, 2, UP)]
    assert plan_update_features(image, levels).records == (FeatureRecord(METADATA_VERSION, 2),)


def test_a_broker_that_lacks_a_finalized_level_may_not_join() -> None:
    image = _image(SUPPORTED)
    check_supported(image, 2, ())
    image = image.apply(FeatureRecord(METADATA_VERSION, 2))
    check_supported(image, 2, SUPPORTED)
    with pytest.raises(KafkaError, match="broker 2 does not support") as caught:
        check_supported(image, 2, ())
    assert caught.value.code is E.UNSUPPORTED_VERSION
