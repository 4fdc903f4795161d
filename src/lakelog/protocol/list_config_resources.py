"""ListConfigResources (key 74): the resources with settings of their own (KIP-1142)."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.wire.schema import Message, Struct, array, int8, int16, int32, string


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


API = Api(74, ListConfigResourcesRequest, ListConfigResourcesResponse)
