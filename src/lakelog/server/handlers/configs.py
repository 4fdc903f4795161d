"""The settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.configs import (
    ConfigChange,
    ConfigResult,
    Replacement,
    ResourceChange,
    plan_alter_configs,
    plan_replace_configs,
)
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.metadata.describe_configs import (
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import ResourceType
from lakelog.protocol import configs as messages
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi
from lakelog.wire.schema import Message

_Request = messages.AlterConfigsRequest | messages.IncrementalAlterConfigsRequest


def describe_configs(
    broker: Broker, context: Context, request: messages.DescribeConfigsRequest
) -> messages.DescribeConfigsResponse:
    """DescribeConfigs (32): returns the settings in force and the source of each.

    A resource that is named twice is described once.
    """
    once = {
        (resource.resource_type, resource.resource_name): resource for resource in request.resources
    }
    return messages.DescribeConfigsResponse(
        results=[_described(broker, resource, request) for resource in once.values()]
    )


def _described(
    broker: Broker,
    resource: messages.DescribeConfigsResource,
    request: messages.DescribeConfigsRequest,
) -> messages.DescribeConfigsResult:
    result = messages.DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        configs = _find(broker, resource)
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = error.message
        return result
    result.configs = [
        _setting(
            config,
            with_synonyms=request.include_synonyms,
            with_documentation=request.include_documentation,
        )
        for config in configs
    ]
    return result


def _find(broker: Broker, resource: messages.DescribeConfigsResource) -> list[DescribedConfig]:
    keys = resource.configuration_keys
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if broker.image.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        return describe_topic(broker.image, name, broker.config, keys)
    if resource.resource_type == ResourceType.GROUP:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a group has a name")
        return describe_group(broker.image, name, broker.config, keys)
    if resource.resource_type != ResourceType.BROKER:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"resource type {resource.resource_type} is not served"
        )
    if not name:
        return describe_broker_defaults(broker.image, keys)
    if name != str(broker.node_id):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"this is broker {broker.node_id}: ask broker {name} itself"
        )
    return describe_broker(broker.config, keys)


def _setting(
    config: DescribedConfig, *, with_synonyms: bool, with_documentation: bool
) -> messages.DescribeConfigsResourceResult:
    row = messages.DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        config_type=config.type,
    )
    if with_synonyms:
        row.synonyms = [
            messages.DescribeConfigsSynonym(name=item.name, value=item.value, source=item.source)
            for item in config.synonyms
        ]
    if with_documentation:
        row.documentation = config.doc
    return row


async def alter_configs(
    broker: Broker, context: Context, request: messages.AlterConfigsRequest
) -> messages.AlterConfigsResponse:
    """AlterConfigs (33): replaces all settings of topics and brokers, each in one change."""
    replacements = [
        Replacement(
            resource.resource_type,
            resource.resource_name,
            [(config.name, config.value) for config in resource.configs],
        )
        for resource in request.resources
    ]
    results = await _submitted(
        broker,
        request,
        lambda image: plan_replace_configs(
            image, replacements, broker=broker.static_config, validate_only=request.validate_only
        ),
    )
    return messages.AlterConfigsResponse(responses=results)


async def incremental_alter_configs(
    broker: Broker, context: Context, request: messages.IncrementalAlterConfigsRequest
) -> messages.IncrementalAlterConfigsResponse:
    """IncrementalAlterConfigs (44): changes single keys of topics and brokers (KIP-339)."""
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
    results = await _submitted(
        broker,
        request,
        lambda image: plan_alter_configs(
            image, changes, broker=broker.static_config, validate_only=request.validate_only
        ),
    )
    return messages.IncrementalAlterConfigsResponse(responses=results)


async def _submitted(
    broker: Broker, request: _Request, plan: Callable[[MetadataImage], Plan[list[ConfigResult]]]
) -> list[messages.AlterConfigsResourceResponse]:
    try:
        # A shorter retention frees space.
        results = await broker.metadata.submit(plan, from_reserve=True)
    except KafkaError as error:
        results = _failures(request, error)
    return _results(results)


def _change_failed(context: Context, request: _Request, error: KafkaError) -> Message:
    return context.api.response(responses=_results(_failures(request, error)))


def _failures(request: _Request, error: KafkaError) -> list[ConfigResult]:
    """All resources fail if the change cannot be committed."""
    return [
        ConfigResult(resource.resource_type, resource.resource_name, error.code, error.message)
        for resource in request.resources
    ]


def _results(results: Iterable[ConfigResult]) -> list[messages.AlterConfigsResourceResponse]:
    return [
        messages.AlterConfigsResourceResponse(
            resource_type=result.resource_type,
            resource_name=result.resource_name,
            error_code=result.error,
            error_message=result.message,
        )
        for result in results
    ]


def list_config_resources(
    broker: Broker, context: Context, request: messages.ListConfigResourcesRequest
) -> messages.ListConfigResourcesResponse:
    """ListConfigResources (74): returns configurable topics, brokers and groups (KIP-1142).

    Version 0 asks for client metrics only, which lakelog does not have.

    The response has UNSUPPORTED_VERSION if a type is unknown.
    """
    if context.version == 0:
        return messages.ListConfigResourcesResponse()
    types = set(request.resource_types) or set(ResourceType)
    if not types <= set(ResourceType):
        return messages.ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return messages.ListConfigResourcesResponse(
        config_resources=[
            messages.ConfigResource(resource_name=name, resource_type=resource_type)
            for resource_type in sorted(types)
            for name in _resource_names(broker, resource_type)
        ]
    )


def _resource_names(broker: Broker, resource_type: int) -> list[str]:
    image = broker.image
    if resource_type == ResourceType.TOPIC:
        return sorted(image.topic_ids)
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(number) for number in sorted(image.brokers)]
    return sorted(name for kind, name in image.config_map if kind == resource_type)


APIS = (
    ServedApi(
        messages.DescribeConfigsRequest,
        describe_configs,
        done="Topics, brokers and groups, with sources, synonyms, types and documentation.",
        missing="Broker loggers; client metrics.",
    ),
    ServedApi(
        messages.AlterConfigsRequest,
        alter_configs,
        done="Topics, brokers and groups; replaces all settings of a resource.",
        missing="Broker loggers; client metrics.",
        by_controller=_change_failed,
    ),
    ServedApi(
        messages.IncrementalAlterConfigsRequest,
        incremental_alter_configs,
        done="Topics, brokers and groups: set, delete, append, subtract, validation only.",
        missing="Broker loggers; client metrics.",
        by_controller=_change_failed,
    ),
    ServedApi(
        messages.ListConfigResourcesRequest,
        list_config_resources,
        done="Topics, brokers and groups.",
        missing="Client metrics.",
    ),
)
