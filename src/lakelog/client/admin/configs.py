"""Configuration of topics and brokers: values, their sources, and changes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from lakelog.base.config.key import ConfigType
from lakelog.base.errors import ErrorCode
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ConnectionLostError, UnreachableError, check
from lakelog.protocol.configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    IncrementalConfig,
    IncrementalResource,
)

_SET = 0
_DELETE = 1
_RESOURCES_MAX = 1000
"""In one request."""


class ResourceType(IntEnum):
    TOPIC = 2
    BROKER = 4
    GROUP = 32


class ConfigSource(IntEnum):
    """The source of a value."""

    UNKNOWN = 0
    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


@dataclass(slots=True, frozen=True)
class ConfigSynonym:
    """One source of a value. `name` may be the broker's key that is the default of a topic's."""

    name: str
    value: str | None
    source: ConfigSource


@dataclass(slots=True, frozen=True)
class ConfigEntry:
    """A key with its effective value, which is `None` for secrets and unset keys.

    synonyms: if requested, all sources of the value; the first one is effective.
    """

    name: str
    value: str | None
    source: ConfigSource
    is_read_only: bool
    is_sensitive: bool
    documentation: str = ""
    type: ConfigType | None = None
    synonyms: tuple[ConfigSynonym, ...] = ()

    @property
    def is_default(self) -> bool:
        """Whether the value is the default, not set for this resource."""
        return self.source is ConfigSource.DEFAULT


class Configs:
    """`Admin.configs`. A topic is identified by its name, a broker by its node id as text."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def describe(
        self,
        kind: ResourceType,
        name: str,
        *,
        keys: Collection[str] | None = None,
        documentation: bool = False,
        synonyms: bool = False,
    ) -> dict[str, ConfigEntry]:
        """Return all keys, or the given ones, with effective values; unknown keys are left out.

        The name "" of a BROKER stands for the values set for all brokers. Raises
        UNKNOWN_TOPIC_OR_PARTITION without retries.
        """
        request = DescribeConfigsRequest(
            resources=[
                DescribeConfigsResource(
                    resource_type=kind,
                    resource_name=name,
                    configuration_keys=None if keys is None else list(keys),
                )
            ],
            include_synonyms=synonyms,
            include_documentation=documentation,
        )
        node = int(name) if kind is ResourceType.BROKER and name else None
        if node is None:
            response = self._cluster.ask_any(request, DescribeConfigsResponse)
        else:
            self._cluster.refresh([])
            response = self._cluster.ask(node, request, DescribeConfigsResponse)
        for result in response.results:
            check(result.error_code, f"{kind.name.lower()} {name!r}", result.error_message)
        rows = [row for result in response.results for row in result.configs]
        return {row.name: _entry(row) for row in sorted(rows, key=lambda row: row.name)}

    def values(self, kind: ResourceType, names: Sequence[str], key: str) -> dict[str, str | None]:
        """Return the effective value of one key of each resource, without unknown topics.

        Raises `ClientError`.
        """
        values: dict[str, str | None] = {}
        for first in range(0, len(names), _RESOURCES_MAX):
            request = DescribeConfigsRequest(
                resources=[
                    DescribeConfigsResource(
                        resource_type=kind, resource_name=name, configuration_keys=[key]
                    )
                    for name in names[first : first + _RESOURCES_MAX]
                ]
            )
            response = self._cluster.ask_any(request, DescribeConfigsResponse)
            for result in response.results:
                if result.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    where = f"{kind.name.lower()} {result.resource_name!r}"
                    check(result.error_code, where, result.error_message)
                for row in result.configs:
                    values[result.resource_name] = row.value
        return values

    def alter(
        self,
        kind: ResourceType,
        name: str,
        values: Mapping[str, str | None],
        *,
        validate_only: bool = False,
    ) -> None:
        """Set the given keys; `None` resets a key to its default. Raises INVALID_CONFIG."""
        changes = [
            IncrementalConfig(
                name=key, config_operation=_DELETE if value is None else _SET, value=value
            )
            for key, value in values.items()
        ]
        resource = IncrementalResource(resource_type=kind, resource_name=name, configs=changes)
        request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
        self._cluster.retrying(lambda: self._send(kind, name, request))

    def _send(self, kind: ResourceType, name: str, request: IncrementalAlterConfigsRequest) -> None:
        answer = IncrementalAlterConfigsResponse
        try:
            if kind is ResourceType.BROKER and name:
                self._cluster.refresh([])
                responses = self._cluster.ask(int(name), request, answer).responses
            else:
                responses = self._cluster.ask_any(request, answer).responses
        except ConnectionLostError as error:
            raise UnreachableError.after(error) from error
        for row in responses:
            check(row.error_code, f"{kind.name.lower()} {name!r}", row.error_message)


def _entry(row: DescribeConfigsResourceResult) -> ConfigEntry:
    return ConfigEntry(
        row.name,
        row.value,
        _source(row.config_source),
        row.read_only,
        row.is_sensitive,
        row.documentation or "",
        ConfigType(row.config_type) if row.config_type in set(ConfigType) else None,
        tuple(ConfigSynonym(item.name, item.value, _source(item.source)) for item in row.synonyms),
    )


def _source(number: int) -> ConfigSource:
    return ConfigSource(number) if number in set(ConfigSource) else ConfigSource.UNKNOWN
