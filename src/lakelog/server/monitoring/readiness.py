"""Whether the broker can do its work now, and if not, why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from lakelog.server.upkeep.shortages import DESCRIPTORS, SPACE

_NAMED_MAX = 10


class Stage(IntEnum):
    """The stage of a broker between its start and its stop."""

    STARTING = 0
    RECOVERING = 1
    LOADING = 2
    SERVING = 3
    STOPPING = 4


class Check(NamedTuple):
    """One check; `reason` is empty if it passes."""

    name: str
    reason: str

    @property
    def passes(self) -> bool:
        """Whether the broker can do its work as far as this check is concerned."""
        return not self.reason


class ClusterStanding(NamedTuple):
    """The place of a broker in its cluster; a broker alone is never fenced, cut off or behind."""

    is_fenced: bool = False
    """Whether the controller has fenced it."""
    is_cut_off: bool = False
    """Whether other brokers may have fenced it without its knowledge."""
    behind: int = 0
    """Replicas that have not been in sync since the start of the broker."""


ALONE = ClusterStanding()


def checks(
    stage: Stage,
    offline: Sequence[tuple[str, int, str]],
    shortages: Mapping[str, str],
    standing: ClusterStanding = ALONE,
) -> list[Check]:
    """Return all checks, whether they pass or not (docs/monitoring.md lists them).

    Args:
        offline: topic, partition and reason of each offline partition.
        shortages: reasons by `SPACE` and `DESCRIPTORS`.
    """
    return [
        Check("metadata", "the broker is reading metadata" if stage < Stage.RECOVERING else ""),
        Check("recovered", _recovery(stage)),
        Check("accepting", _accepting(stage)),
        Check("unfenced", _fenced(standing)),
        Check("in_sync", _behind(standing)),
        Check("partitions", offline_reason(offline)),
        Check(SPACE, shortages.get(SPACE, "")),
        Check(DESCRIPTORS, shortages.get(DESCRIPTORS, "")),
    ]


def _recovery(stage: Stage) -> str:
    if stage < Stage.LOADING:
        return "the broker is opening and recovering its logs"
    return "the broker is loading groups and transactions" if stage < Stage.SERVING else ""


def _accepting(stage: Stage) -> str:
    if stage is Stage.STOPPING:
        return "the broker is stopping"
    return "" if stage is Stage.SERVING else "the broker does not accept connections yet"


def _fenced(standing: ClusterStanding) -> str:
    if standing.is_fenced:
        return "the controller has not unfenced this broker yet"
    if standing.is_cut_off:
        return (
            "other brokers may have fenced this broker: neither the metadata store nor all other "
            "brokers confirm that it leads its partitions"
        )
    return ""


def _behind(standing: ClusterStanding) -> str:
    count = standing.behind
    if not count:
        return ""
    return f"{count} replica{' is' if count == 1 else 's are'} catching up with the leader"


def offline_reason(offline: Sequence[tuple[str, int, str]]) -> str:
    """Return the number of offline partitions and some of them; an empty text without any.

    offline: topic, partition and reason of each.
    """
    if not offline:
        return ""
    named = [f"{topic}-{index} ({reason})" for topic, index, reason in offline[:_NAMED_MAX]]
    more = f" and {len(offline) - _NAMED_MAX} more" if len(offline) > _NAMED_MAX else ""
    return f"{len(offline)} offline: {', '.join(named)}{more}"
