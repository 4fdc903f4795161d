"""DescribeConfigs (32): returns the settings in force and the source of each."""

from __future__ import annotations

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.topics import check_topic_name
from lakelog.metadata.describe_configs import (
    DescribedConfig,
    describe_broker,
    describe_broker_defaults,
    describe_group,
    describe_topic,
)
from lakelog.metadata.records import ResourceType
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from lakelog.server.broker import Broker
from lakelog.server.requests.context import Context
from lakelog.server.served_api import ServedApi


def handle(
    broker: Broker, context: Context, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    """Return the settings of each resource, or its error code; each resource once."""
    once = {
        (resource.resource_type, resource.resource_name): resource for resource in request.resources
    }
    return DescribeConfigsResponse(
        results=[_described(broker, resource, request) for resource in once.values()]
    )


API = ServedApi(
    DescribeConfigsRequest,
    handle,
    done="Topics, brokers and groups, with sources, synonyms, types and documentation.",
    missing="Broker loggers; client metrics.",
)


def _described(
    broker: Broker, resource: DescribeConfigsResource, request: DescribeConfigsRequest
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        configs = _find(broker, resource)
    except KafkaError as error:
        result.error_code = error.code
        result.error_message = error.message
        return result
    result.configs = [
        _row(
            config,
            with_synonyms=request.include_synonyms,
            with_documentation=request.include_documentation,
        )
        for config in configs
    ]
    return result


def _find(broker: Broker, resource: DescribeConfigsResource) -> list[DescribedConfig]:
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


def _row(
    config: DescribedConfig, *, with_synonyms: bool, with_documentation: bool
) -> DescribeConfigsResourceResult:
    row = DescribeConfigsResourceResult(
        name=config.name,
        value=config.value,
        read_only=config.read_only,
        config_source=config.source,
        is_sensitive=config.sensitive,
        config_type=config.type,
    )
    if with_synonyms:
        row.synonyms = [
            DescribeConfigsSynonym(name=item.name, value=item.value, source=item.source)
            for item in config.synonyms
        ]
    if with_documentation:
        row.documentation = config.doc
    return row
