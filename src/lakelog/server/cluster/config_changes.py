"""Commits the configuration changes of AlterConfigs and IncrementalAlterConfigs."""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.errors import KafkaError
from lakelog.metadata.controller.configs import ConfigResult, Replacement, ResourceChange
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.plan import Planner


async def submit(
    metadata: MetadataLog,
    wanted: Sequence[Replacement | ResourceChange],
    plan: Planner[list[ConfigResult]],
) -> list[ConfigResult]:
    """Commit one change for all resources; return a result for each.

    All of them fail if the change cannot be committed. It may use the disk's reserve, because a
    shorter retention frees space.
    """
    try:
        return await metadata.submit(plan, from_reserve=True)
    except KafkaError as error:
        return [
            ConfigResult(one.resource_type, one.resource_name, error.code, error.message)
            for one in wanted
        ]
