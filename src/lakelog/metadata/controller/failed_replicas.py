"""Replicas whose logs are damaged or have failed: others lead instead, where there are any."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.metadata.controller.brokers import check_broker_epoch
from lakelog.metadata.failover import Failure, after_failure
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import PartitionRecord


def plan_failed_replicas(
    image: MetadataImage, broker_id: int, epoch: int, failed: Mapping[tuple[bytes, int], Failure]
) -> Plan[None]:
    """Move leaderships from failed replicas of a broker; they leave the ISRs and the ELRs.

    Without a successor, a partition whose log is offline has no leader.

    failed: the failures by topic id and partition, see `after_failure`.

    Raises STALE_BROKER_EPOCH for another epoch than the present one.
    """
    check_broker_epoch(image, broker_id, epoch)
    unable, records = image.fenced | image.read_only, []
    for (topic_id, index), failure in sorted(failed.items()):
        topic, old = image.topic_by_id(topic_id), image.partition(topic_id, index)
        if topic is None or old is None or broker_id not in old.replicas:
            continue
        new = after_failure(old, broker_id, failure, unable, image.min_isr(topic.name))
        if new is not old:
            records.append(PartitionRecord(topic_id, *new))
    return Plan(tuple(records), None)
