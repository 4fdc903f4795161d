"""The settings of topics, brokers and groups."""

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


class DescribeConfigsResource(Struct):
    """A resource and the requested keys; null stands for all."""

    resource_type: int = int8()
    """2: topic, 4: broker, 8: broker logger, 16: client metrics, 32: group."""
    resource_name: str = string()
    configuration_keys: list[str] | None = array(string, nullable="0+")


class DescribeConfigsRequest(Message, versions="1-4", flexible="4+"):
    """Requests the settings of topics, brokers and other resources.

    Versions: 3 adds documentation, 4 is flexible.
    """

    resources: list[DescribeConfigsResource] = array(DescribeConfigsResource)
    include_synonyms: bool = boolean()
    include_documentation: bool = boolean("3+")


class DescribeConfigsSynonym(Struct):
    """A value of the key or of a synonym, in order of precedence."""

    name: str = string()
    value: str | None = string(nullable="0+")
    source: int = int8()


class DescribeConfigsResourceResult(Struct):
    """One key, its value (null for a password) and the source of the value."""

    name: str = string()
    value: str | None = string(nullable="0+")
    read_only: bool = boolean()
    config_source: int = int8(default=-1)
    """1: topic, 2: this broker (dynamic), 3: all brokers (dynamic), 4: this broker (static),
    5: default, 6: broker logger, 7: client metrics, 8: group, -1: unknown."""
    is_sensitive: bool = boolean()
    synonyms: list[DescribeConfigsSynonym] = array(DescribeConfigsSynonym)
    config_type: int = int8("3+")
    """0: unknown, 1: boolean, 2: string, 3: int, 4: short, 5: long, 6: double, 7: list, 8: class,
    9: password."""
    documentation: str | None = string("3+", nullable="0+")


class DescribeConfigsResult(Struct):
    """The settings of one resource, or an error."""

    error_code: int = int16()
    error_message: str | None = error_text()
    resource_type: int = int8()
    resource_name: str = string()
    configs: list[DescribeConfigsResourceResult] = array(DescribeConfigsResourceResult)


class DescribeConfigsResponse(Message, versions="1-4", flexible="4+"):
    """The settings of each resource."""

    throttle_time_ms: int = int32()
    results: list[DescribeConfigsResult] = array(DescribeConfigsResult)


class AlterableConfig(Struct):
    """A key and its value."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """A resource and all its new settings; other keys return to their defaults."""

    resource_type: int = int8()
    """The same numbers as in DescribeConfigs."""
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, versions="0-2", flexible="2+"):
    """Replaces the settings of resources; IncrementalAlterConfigs (KIP-339) supersedes it.

    Versions: 2 is flexible.
    """

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: int = int16()
    error_message: str | None = error_text()
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, versions="0-2", flexible="2+"):
    """The result for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class IncrementalConfig(Struct):
    """A change of one key."""

    name: str = string()
    config_operation: int = int8()
    """0: set, 1: delete, 2: append to a list, 3: subtract from a list."""
    value: str | None = string(nullable="0+")


class IncrementalResource(Struct):
    """A resource and its changes, which are applied all or none."""

    resource_type: int = int8()
    """The same numbers as in DescribeConfigs."""
    resource_name: str = string()
    configs: list[IncrementalConfig] = array(IncrementalConfig)


class IncrementalAlterConfigsRequest(Message, versions="0-1", flexible="1+"):
    """Changes single keys and keeps the others. Versions: 1 is flexible."""

    resources: list[IncrementalResource] = array(IncrementalResource)
    validate_only: bool = boolean()


class IncrementalAlterConfigsResponse(Message, versions="0-1", flexible="1+"):
    """The result for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


class ListConfigResourcesRequest(Message, versions="0-1", flexible="0+"):
    """Requests resources. Versions: 0 lists client metrics only; from 1 on, no types means all."""

    resource_types: list[int] = array(int8, "1+")


class ConfigResource(Struct):
    """A resource; `resource_type` as in DescribeConfigs."""

    resource_name: str = string()
    resource_type: int = int8("1+", default=16)


class ListConfigResourcesResponse(Message, versions="0-1", flexible="0+"):
    """All resources of the requested types."""

    throttle_time_ms: int = int32()
    error_code: int = int16()
    config_resources: list[ConfigResource] = array(ConfigResource)


APIS = (
    Api(32, DescribeConfigsRequest, DescribeConfigsResponse),
    Api(33, AlterConfigsRequest, AlterConfigsResponse),
    Api(44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    Api(74, ListConfigResourcesRequest, ListConfigResourcesResponse),
)
