"""AlterConfigs (key 33): the older way, which replaces all settings of a resource."""

from __future__ import annotations

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


class AlterableConfig(Struct):
    """A key and its value."""

    name: str = string()
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """A resource and all that is to be set on it; what is not named goes back to its default."""

    resource_type: int = int8()
    """As in DescribeConfigs."""
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class AlterConfigsRequest(Message, versions="0-2", flexible="2+"):
    """Deprecated by IncrementalAlterConfigs (KIP-339); 2 is flexible."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """One resource."""

    error_code: int = int16()
    error_message: str | None = error_text()
    resource_type: int = int8()
    resource_name: str = string()


class AlterConfigsResponse(Message, versions="0-2", flexible="2+"):
    """What became of each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)
