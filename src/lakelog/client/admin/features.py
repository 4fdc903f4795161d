"""The feature levels of a cluster: finalized, and supported by each broker (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lakelog import __version__
from lakelog.client.admin.change import change, check_change
from lakelog.client.cluster import Cluster
from lakelog.client.errors import ClientError, check
from lakelog.protocol.cluster import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse
from lakelog.protocol.connections import ApiVersionsRequest, ApiVersionsResponse

_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE = 1, 2, 3


@dataclass(slots=True, frozen=True)
class Feature:
    """A feature of the cluster.

    level: the finalized one, 0 if none is. supported: the lowest and the highest level by node id,
    of the brokers that have answered and know the feature. lacking: brokers that do not know it.
    """

    name: str
    level: int
    supported: Mapping[int, tuple[int, int]]
    lacking: tuple[int, ...] = ()

    @property
    def lowest(self) -> int:
        """The lowest level that every broker supports which has answered."""
        return 0 if self.lacking else max(low for low, _ in self.supported.values())

    @property
    def highest(self) -> int:
        """The highest level that every broker supports which has answered."""
        return 0 if self.lacking else min(high for _, high in self.supported.values())


class Features:
    """`Admin.features`."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def levels(self) -> Mapping[str, int]:
        """Return the finalized level of each feature, by name.

        Raises `UnreachableError` and `ClientError`.
        """
        return _levels(self._cluster.ask_any(_request(), ApiVersionsResponse))

    def describe(self) -> list[Feature]:
        """Return all features by name, as the brokers that answer support them.

        Raises `UnreachableError` and `ClientError`.
        """
        first = self._cluster.ask_any(_request(), ApiVersionsResponse)
        levels = _levels(first)
        supported: dict[int, dict[str, tuple[int, int]]] = {}
        for node_id in self._cluster.refresh([]).brokers:
            try:
                response = self._cluster.ask(node_id, _request(), ApiVersionsResponse)
            except ClientError:
                continue
            rows = response.supported_features
            supported[node_id] = {row.name: (row.min_version, row.max_version) for row in rows}
        names = sorted(levels.keys() | {name for of_node in supported.values() for name in of_node})
        return [_feature(name, levels.get(name, 0), supported) for name in names]

    def update(
        self,
        upgrades: Mapping[str, int],
        downgrades: Mapping[str, int],
        *,
        is_unsafe: bool = False,
        validate_only: bool = False,
    ) -> None:
        """Finalize all these levels, or none; `validate_only` checks them and changes nothing.

        is_unsafe: whether a downgrade may lose metadata; brokers of lakelog make no difference.
        Raises `ClientError` with INVALID_UPDATE_VERSION (Kafka: FEATURE_UPDATE_FAILED, too), and
        `OutcomeUnknownError`.
        """
        down = _UNSAFE_DOWNGRADE if is_unsafe else _SAFE_DOWNGRADE
        updates = [(name, level, _UPGRADE) for name, level in upgrades.items()]
        updates += [(name, level, down) for name, level in downgrades.items()]
        request = UpdateFeaturesRequest(
            feature_updates=[
                FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
                for name, level, kind in updates
            ],
            validate_only=validate_only,
        )

        def work() -> None:
            response = change(
                self._cluster, request, UpdateFeaturesResponse, "the change of levels"
            )
            check_change(response.error_code, "the features", response.error_message)
            for row in response.results:
                check_change(row.error_code, row.feature, row.error_message)

        self._cluster.retrying(work)


def _request() -> ApiVersionsRequest:
    return ApiVersionsRequest(client_software_name="lakelog", client_software_version=__version__)


def _levels(response: ApiVersionsResponse) -> dict[str, int]:
    check(response.error_code, "the features")
    rows = sorted(response.finalized_features, key=lambda row: row.name)
    return {row.name: row.max_version_level for row in rows}


def _feature(
    name: str, level: int, supported: Mapping[int, Mapping[str, tuple[int, int]]]
) -> Feature:
    ranges = {node_id: rows[name] for node_id, rows in sorted(supported.items()) if name in rows}
    lacking = tuple(sorted(supported.keys() - ranges.keys()))
    return Feature(name, level, ranges, lacking)
