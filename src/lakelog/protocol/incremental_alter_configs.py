"""IncrementalAlterConfigs (key 44): change single settings of resources (KIP-339)."""

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


class AlterableConfig(Struct):
    """A change of one key."""

    name: str = string()
    config_operation: int = int8()
    """0: set, 1: delete, 2: append to a list, 3: subtract from a list."""
    value: str | None = string(nullable="0+")


class AlterConfigsResource(Struct):
    """A resource and its changes, which are applied all or none."""

    resource_type: int = int8()
    """The same numbers as in DescribeConfigs."""
    resource_name: str = string()
    configs: list[AlterableConfig] = array(AlterableConfig)


class IncrementalAlterConfigsRequest(Message, versions="0-1", flexible="1+"):
    """Changes single keys and keeps the others. Versions: 1 is flexible."""

    resources: list[AlterConfigsResource] = array(AlterConfigsResource)
    validate_only: bool = boolean()


class AlterConfigsResourceResponse(Struct):
    """The result for one resource."""

    error_code: int = int16()
    error_message: str | None = error_text()
    resource_type: int = int8()
    resource_name: str = string()


class IncrementalAlterConfigsResponse(Message, versions="0-1", flexible="1+"):
    """The result for each resource."""

    throttle_time_ms: int = int32()
    responses: list[AlterConfigsResourceResponse] = array(AlterConfigsResourceResponse)


API = Api(44, IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse)
