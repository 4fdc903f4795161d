"""IncrementalAlterConfigs (44): changes single keys of topics and brokers (KIP-339)."""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.configs import ConfigChange, ResourceChange, plan_alter_configs
from lakelog.protocol.configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    changes = [
        ResourceChange(
            resource.resource_type,
            resource.resource_name,
            [
                ConfigChange(config.name, config.config_operation, config.value)
                for config in resource.configs
            ],
        )
        for resource in request.resources
    ]
    try:
        results = await broker.metadata.submit(
            lambda image: plan_alter_configs(
                image, changes, broker=broker.static_config, validate_only=request.validate_only
            ),
            # A shorter retention frees space.
            from_reserve=True,
        )
    except KafkaError as error:
        return _failed(context, request, error)
    return IncrementalAlterConfigsResponse(
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


def _failed(
    context: Context, request: IncrementalAlterConfigsRequest, error: KafkaError
) -> IncrementalAlterConfigsResponse:
    """All resources fail if the change cannot be committed."""
    return IncrementalAlterConfigsResponse(
        responses=[
            AlterConfigsResourceResponse(
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                error_code=error.code,
                error_message=error.message,
            )
            for resource in request.resources
        ]
    )


API = ServedApi(
    IncrementalAlterConfigsRequest,
    handle,
    done="Topics, brokers and groups: set, delete, append, subtract, validation only.",
    missing="Broker loggers; client metrics.",
    by_controller=_failed,
)
