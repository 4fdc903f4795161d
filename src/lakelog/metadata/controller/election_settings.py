"""Settings that decide about elections: `min.insync.replicas`, `unclean.leader.election.enable`.

The metadata has their cluster-wide values (KIP-966). A value in the file of one broker would let
brokers disagree on the replicas that have every committed record, and elections would depend on the
controller of the moment.
"""

from __future__ import annotations

from collections.abc import Sequence

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.image import ELECTION_KEYS, MetadataImage
from lakelog.metadata.records import ConfigRecord, LeadersReviewed, Record, ResourceType


def plan_election_settings(image: MetadataImage, static: BrokerConfig) -> list[Record]:
    """Record this broker's settings for the whole cluster, as far as it has none."""
    known = image.configs(ResourceType.BROKER, "")
    return with_review(
        image,
        [
            ConfigRecord(ResourceType.BROKER, "", key, static.static[key])
            for key in sorted(ELECTION_KEYS)
            if key in static.static and key not in known
        ],
    )


def with_review(image: MetadataImage, records: Sequence[Record]) -> list[Record]:
    """Return the records, followed by `LeadersReviewed` if they change an ELR or a leader.

    A partition without a leader gets one as soon as the settings allow it.
    """
    is_about_elections = any(
        isinstance(record, ConfigRecord)
        and record.key in ELECTION_KEYS
        and record.resource_type in (ResourceType.TOPIC, ResourceType.BROKER)
        for record in records
    )
    if not is_about_elections:
        return list(records)
    changed = image.apply_all(records, image.end)
    review = LeadersReviewed()
    has_effect = changed.apply(review).topics_by_id is not changed.topics_by_id
    return [*records, review] if has_effect else list(records)
