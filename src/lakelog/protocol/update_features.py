"""UpdateFeatures (key 57): finalizes levels of features (KIP-584)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import (
    Message,
    Struct,
    array,
    boolean,
    error_text,
    int8,
    int16,
    int32,
    string,
)


class FeatureUpdateKey(Struct):
    """A feature and its wanted level."""

    feature: str = string()
    max_version_level: int = int16()
    allow_downgrade: bool = boolean("0")
    upgrade_type: int = int8("1+", default=1)
    """1: upgrade, 2: safe downgrade, 3: unsafe downgrade."""


class UpdateFeaturesRequest(Message, versions="0-2", flexible="0+"):
    """Names levels.

    Versions: 1 has kinds of downgrades and a request without effect, 2 has the result of the
    whole request alone (KIP-1022).
    """

    timeout_ms: int = int32(default=60_000)
    feature_updates: list[FeatureUpdateKey] = array(FeatureUpdateKey)
    validate_only: bool = boolean("1+")


class UpdatableFeatureResult(Struct):
    """The result for one feature."""

    feature: str = string()
    error_code: int = int16()
    error_message: str | None = error_text()


class UpdateFeaturesResponse(Message, versions="0-2", flexible="0+"):
    """The result, which is the same for all features."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    error_message: str | None = error_text()
    results: list[UpdatableFeatureResult] = array(UpdatableFeatureResult, "0-1")


API = Api(57, UpdateFeaturesRequest, UpdateFeaturesResponse)
