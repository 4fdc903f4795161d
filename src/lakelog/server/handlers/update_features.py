"""UpdateFeatures (57): finalizes levels of features, all of the request or none.

Version 0 allows any downgrade or none; before version 2 each feature has a result.
"""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.features import FeatureUpdate, UpgradeType
from lakelog.protocol.cluster import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    """Finalize the levels. Errors: see `plan_update_features`."""
    updates = [_update(update, context.version) for update in request.feature_updates]
    try:
        await broker.controller.update_features(updates, validate_only=request.validate_only)
    except KafkaError as error:
        return _failed(context, request, error)
    results = [
        UpdatableFeatureResult(feature=update.name, error_message=None) for update in updates
    ]
    return UpdateFeaturesResponse(error_message=None, results=results)


def _failed(
    context: Context, request: UpdateFeaturesRequest, error: KafkaError
) -> UpdateFeaturesResponse:
    return UpdateFeaturesResponse(error_code=error.code, error_message=error.message)


API = ServedApi(
    UpdateFeaturesRequest,
    handle,
    done="transaction.version, lakelog.metadata.version.",
    missing="metadata.version and other levels of Apache Kafka.",
    by_controller=_failed,
)


def _update(update: FeatureUpdateKey, version: int) -> FeatureUpdate:
    kind = update.upgrade_type
    if version == 0 and update.allow_downgrade:
        kind = UpgradeType.SAFE_DOWNGRADE
    return FeatureUpdate(update.feature, update.max_version_level, kind)
