"""The settings of topics, brokers and groups."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire import schema as wire


class DescribeConfigsResource(wire.Struct):
    """A resource and the requested keys; null stands for all."""

    resource_type: int = wire.int8()
    """2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group."""
    resource_name: str = wire.string()
    configuration_keys: list[str] | None = wire.array(wire.string, nullable="0+")


class DescribeConfigsRequest(wire.Message, versions="1-4", flexible="4+"):
    """Requests the settings of topics, brokers and other resources.

    Versions: 3 adds documentation, 4 is flexible.
    """

    resources: list[DescribeConfigsResource] = wire.array(DescribeConfigsResource)
    include_synonyms: bool = wire.boolean()
    include_documentation: bool = wire.boolean("3+")


class DescribeConfigsSynonym(wire.Struct):
    """A value of the key or of a synonym, in order of precedence."""

    name: str = wire.string()
    value: str | None = wire.string(nullable="0+")
    source: int = wire.int8()


class DescribeConfigsResourceResult(wire.Struct):
    """One key, its value (null for a password) and the source of the value."""

    name: str = wire.string()
    value: str | None = wire.string(nullable="0+")
    read_only: bool = wire.boolean()
    config_source: int = wire.int8(default=-1)
    """1: topic, 2: this broker (dynamic), 3: all brokers (dynamic), 4: this broker (static),
    5: default, 6: broker logger, 7: client metrics, 8: group, -1: unknown."""
    is_sensitive: bool = wire.boolean()
    synonyms: list[DescribeConfigsSynonym] = wire.array(DescribeConfigsSynonym)
    config_type: int = wire.int8("3+")
    """0: unknown, 1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list, 8: class,
    9: password."""
    documentation: str | None = wire.string("3+", nullable="0+")


class DescribeConfigsResult(wire.Struct):
    """The settings of one resource, or an error."""

    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()
    resource_type: int = wire.int8()
    resource_name: str = wire.string()
    configs: list[DescribeConfigsResourceResult] = wire.array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(wire.Message, versions="1-4", flexible="4+"):
    """The settings of each resource."""

    throttle_time_ms: int = wire.int32()
    results: list[DescribeConfigsResult] = wire.array(DescribeConfigsResult)


class AlterableConfig(wire.Struct):
    """A key and its value."""

    name: str = wire.string()
    value: str | None = wire.string(nullable="0+")


class AlterConfigsResource(wire.Struct):
    """A resource and all its new settings; other keys return to their defaults."""

    resource_type: int = wire.int8()
    """The same numbers as in DescribeConfigs."""
    resource_name: str = wire.string()
    configs: list[AlterableConfig] = wire.array(AlterableConfig)


class AlterConfigsRequest(wire.Message, versions="0-2", flexible="2+"):
    """Replaces the settings of resources; IncrementalAlterConfigs (KIP-339) supersedes it.

    Versions: 2 is flexible.
    """

    resources: list[AlterConfigsResource] = wire.array(AlterConfigsResource)
    validate_only: bool = wire.boolean()


class AlterConfigsResourceResponse(wire.Struct):
    """The result for one resource."""

    error_code: int = wire.int16()
    error_message: str | None = wire.error_text()
    resource_type: int = wire.int8()
    resource_name: str = wire.string()


class AlterConfigsResponse(wire.Message, versions="0-2", flexible="2+"):
    """The result for each resource."""

    throttle_time_ms: int = wire.int32()
    responses: list[AlterConfigsResourceResponse] = wire.array(AlterConfigsResourceResponse)


class IncrementalConfig(wire.Struct):
    """A change of one key."""

    name: str = wire.string()
    config_operation: int = wire.int8()
    """0: set, 1: delete, 2: append to a list, 3: subtract from a list."""
    value: str | None = wire.string(nullable="0+")


class IncrementalResource(wire.Struct):
    """A resource and its changes, which are applied all or none."""

    resource_type: int = wire.int8()
    """The same numbers as in DescribeConfigs."""
    resource_name: str = wire.string()
    configs: list[IncrementalConfig] = wire.array(IncrementalConfig)


class IncrementalAlterConfigsRequest(wire.Message, versions="0-1", flexible="1+"):
    """Changes single keys and keeps the others. Versions: 1 is flexible."""

    resources: list[IncrementalResource] = wire.array(IncrementalResource)
    validate_only: bool = wire.boolean()


class IncrementalAlterConfigsResponse(wire.Message, versions="0-1", flexible="1+"):
    """The result for each resource."""

    throttle_time_ms: int = wire.int32()
    responses: list[AlterConfigsResourceResponse] = wire.array(AlterConfigsResourceResponse)


class ListConfigResourcesRequest(wire.Message, versions="0-1", flexible="0+"):
    """Requests resources. Versions: 0 lists client metrics only; from 1 on, no types means all."""

    resource_types: list[int] = wire.array(wire.int8, "1+")


class ConfigResource(wire.Struct):
    """A resource; `resource_type` as in DescribeConfigs."""

    resource_name: str = wire.string()
    resource_type: int = wire.int8("1+", default=16)


class ListConfigResourcesResponse(wire.Message, versions="0-1", flexible="0+"):
    """All resources of the requested types."""

    throttle_time_ms: int = wire.int32()
    error_code: int = wire.int16()
    config_resources: list[ConfigResource] = wire.array(ConfigResource)


APIS = (
    Api(32, DescribeConfigsRequest, DescribeConfigsResponse),
    Api(33, AlterConfigsRequest, AlterConfigsResponse),
    Api(44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    Api(74, ListConfigResourcesRequest, ListConfigResourcesResponse),
)
