"""DescribeConfigs (key 32): the settings of resources and their sources."""

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


API = Api(32, DescribeConfigsRequest, DescribeConfigsResponse)
