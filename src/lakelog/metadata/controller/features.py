"""Changes of finalized feature levels (KIP-584, KIP-1022)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.features import (
    LEVELS_SINCE,
    METADATA_VERSION,
    SUPPORTED,
    SupportedLevels,
    unsupported,
)
from lakelog.metadata.image import BrokerImage, MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import FeatureRecord


class UpgradeType(IntEnum):
    """`upgrade_type` on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The wanted level of a feature."""

    name: str
    level: int
    upgrade_type: int


Declared = Mapping[tuple[int, int], tuple[SupportedLevels, ...]]
"""Supported levels by broker id and broker epoch."""
_NONE: Declared = MappingProxyType({})


def plan_update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    declared: Declared = _NONE,
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Finalize all levels, or none.

    declared: the levels of brokers whose registrations have none.

    Of several levels of a feature the last one counts. Raises INVALID_UPDATE_VERSION, as Apache
    Kafka does, for an unknown feature or upgrade type, for a level that a registered broker does
    not support, and for one below the present one, unless a downgrade is requested and possible.
    """
    last = {update.name: update for update in updates}.values()
    for update in last:
        _check(image, update, declared)
    records = tuple(
        FeatureRecord(update.name, update.level)
        for update in last
        if update.level != image.feature_level(update.name)
    )
    _check_recordable(image, records)
    return Plan(() if validate_only else records, None)


def undeclared(image: MetadataImage) -> list[BrokerImage]:
    """Return the brokers that registered before their levels could be recorded, by id."""
    return [broker for _, broker in sorted(image.brokers.items()) if not broker.features]


def _check_recordable(image: MetadataImage, records: Sequence[FeatureRecord]) -> None:
    """Raise if an older broker could read the log up to now, and could not read these records."""
    level = image.apply_all(records, image.end + 1).feature_level(METADATA_VERSION)
    if records and level < LEVELS_SINCE:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"levels need {METADATA_VERSION}={LEVELS_SINCE}; upgrade all brokers, and finalize it "
            "first or in the same request",
        )


def check_supported(
    image: MetadataImage, broker_id: int, supported: tuple[SupportedLevels, ...]
) -> None:
    """Raise UNSUPPORTED_VERSION unless a joining broker supports all finalized levels."""
    missing = unsupported(image.feature_levels, supported)
    if missing:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"broker {broker_id} does not support the feature levels of the cluster: "
            f"{', '.join(missing)}; start a version of lakelog that does",
        )


def _check(image: MetadataImage, update: FeatureUpdate, declared: Declared) -> None:
    text = f"{update.name}={update.level}"
    if update.upgrade_type not in list(UpgradeType):
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION, f"{text}: unknown upgrade type {update.upgrade_type}"
        )
    supported = {feature.name for feature in SUPPORTED}
    if update.name not in supported:
        names = ", ".join(sorted(supported))
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{update.name} is no feature; expected one of {names}",
        )
    levels = {update.name: update.level}
    own = unsupported(levels, SUPPORTED)
    if own:
        raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, f"unsupported level {own[0]}")
    for broker_id, broker in sorted(image.brokers.items()):
        features = broker.features or declared.get((broker_id, broker.epoch), ())
        if not unsupported(levels, features):
            continue
        advice = "upgrade or unregister it first"
        if not features and broker.is_fenced:
            advice = "it does not run; start it in the new version, or unregister it"
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"broker {broker_id} does not support {text}; {advice}",
        )
    _check_direction(image, update)


def _check_direction(image: MetadataImage, update: FeatureUpdate) -> None:
    present = image.feature_level(update.name)
    if update.level >= present:
        return
    text = f"{update.name} is at level {present}"
    if update.upgrade_type == UpgradeType.UPGRADE:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{text}; a lower one needs the upgrade type of a downgrade",
        )
    if update.name == METADATA_VERSION:
        raise KafkaError(
            ErrorCode.INVALID_UPDATE_VERSION,
            f"{text}, and cannot be lowered: older versions cannot read the metadata log",
        )
