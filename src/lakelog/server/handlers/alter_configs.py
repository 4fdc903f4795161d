"""AlterConfigs (33): replaces all settings of topics and brokers, each in one change."""

from __future__ import annotations

from lakelog.metadata.controller.configs import (
    Replacement,
    plan_replace_configs,
)
from lakelog.protocol.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.cluster.config_changes import submit
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    wanted = [
        Replacement(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    results = await submit(
        broker.metadata,
        wanted,
        lambda image: plan_replace_configs(
            image, wanted, broker=broker.static_config, validate_only=request.validate_only
        ),
    )
    return AlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                resource_type=result.resource_type,
                resource_name=result.resource_name,
                error_code=result.error,
                error_message=result.message,
            )
            for result in results
        ]
    )


API = ServedApi(
    AlterConfigsRequest,
    handle,
    done="Topics, brokers and groups; replaces all settings of a resource.",
    missing="Broker loggers; client metrics.",
    by_controller=True,
)
