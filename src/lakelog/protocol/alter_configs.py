"""AlterConfigs (key 33): replace all settings of a resource (deprecated)."""

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


API = Api(33, AlterConfigsRequest, AlterConfigsResponse)
