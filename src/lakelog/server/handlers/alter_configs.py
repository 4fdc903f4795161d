"""AlterConfigs (33): replaces all settings of topics and brokers, each in one change."""

from __future__ import annotations

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.configs import Replacement, plan_replace_configs
from lakelog.protocol.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


async def handle(
    broker: Broker, context: Context, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    replacements = [
        Replacement(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    try:
        results = await broker.metadata.submit(
            lambda image: plan_replace_configs(
                image,
                replacements,
                broker=broker.static_config,
                validate_only=request.validate_only,
            ),
            # A shorter retention frees space.
            from_reserve=True,
        )
    except KafkaError as error:
        return _failed(context, request, error)
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


def _failed(
    context: Context, request: AlterConfigsRequest, error: KafkaError
) -> AlterConfigsResponse:
    """All resources fail if the change cannot be committed."""
    return AlterConfigsResponse(
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
    AlterConfigsRequest,
    handle,
    done="Topics, brokers and groups; replaces all settings of a resource.",
    missing="Broker loggers; client metrics.",
    by_controller=_failed,
)
