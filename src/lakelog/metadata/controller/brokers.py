"""Plans about brokers: registration, fencing, and the feature levels that all of them support.

Finalized levels change as KIP-584 and KIP-1022 describe. Producer ids are allocated in blocks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import IntEnum
from types import MappingProxyType
from typing import NamedTuple

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.features import (
    LEVELS_SINCE,
    METADATA_VERSION,
    READ_ONLY_SINCE,
    SUPPORTED,
    SupportedLevels,
    unsupported,
)
from lakelog.metadata.image import BrokerImage, MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import (
    NO_DIRECTORY,
    BrokerFenced,
    BrokerLost,
    BrokerReadOnly,
    BrokerRecord,
    BrokerUnfenced,
    BrokerUnregistered,
    BrokerWritable,
    ClusterRecord,
    FeatureRecord,
    ForgottenEpochs,
    LeadersReviewed,
    ProducerIdBlock,
    Record,
)

PRODUCER_ID_BLOCK = 1000
_PRODUCER_ID_MAX = (1 << 63) - 1


def plan_cluster_id(image: MetadataImage, expected: str | None, fresh: str) -> Plan[str]:
    """Return the id of the cluster: the stored one, else `expected`, else `fresh`.

    A new cluster has all features at their highest levels.

    Raises INCONSISTENT_CLUSTER_ID when the stored id differs from `expected`.
    """
    if image.cluster_id is None:
        cluster_id = expected or fresh
        highest = tuple(FeatureRecord(feature.name, feature.highest) for feature in SUPPORTED)
        return Plan((ClusterRecord(cluster_id), *highest), cluster_id)
    if expected is not None and expected != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the metadata store belongs to cluster {image.cluster_id}, and the data folder to "
            f"cluster {expected}; use a new data folder, or the store of the folder's cluster",
        )
    return Plan((), image.cluster_id)


def plan_register_broker(
    image: MetadataImage,
    broker_id: int,
    incarnation_id: bytes,
    *,
    endpoints: tuple[Endpoint, ...] = (),
    rack: str | None = None,
) -> Plan[int]:
    """Return the epoch of a broker that is alone; the leader epochs of its partitions rise too.

    A repetition by the same process returns its epoch again (KIP-631). Partitions that had no
    leader in a cluster, before the metadata was moved, get one.
    """
    broker = image.brokers.get(broker_id)
    if broker is not None and broker.incarnation_id == incarnation_id:
        return Plan((), broker.epoch)
    epoch = last_epoch(image, broker_id) + 1
    records: list[Record] = [
        BrokerRecord(
            broker_id,
            incarnation_id,
            epoch,
            endpoints,
            rack,
            NO_DIRECTORY,
            _recorded(image, SUPPORTED),
        )
    ]
    if broker is not None and broker.is_fenced:
        records.append(BrokerUnfenced(broker_id, epoch))
    return Plan(tuple(reviewed(image, records)), epoch)


class Joined(NamedTuple):
    """The registration of a broker in a cluster."""

    epoch: int
    has_lost: bool
    """Whether it lacks records that a former process of the broker had written."""


def plan_join(
    image: MetadataImage,
    broker_id: int,
    incarnation_id: bytes,
    *,
    endpoints: tuple[Endpoint, ...],
    rack: str | None,
    directory_id: bytes,
    previous_epoch: int,
    features: tuple[SupportedLevels, ...] = (),
    kept_topics: Sequence[bytes] = (),
    kept_topics_epoch: int = -1,
) -> Plan[Joined]:
    """Register a process of a broker, which is fenced until `plan_unfence` (KIP-631).

    The partitions that its former process led get other leaders. Unless the data folder has all
    that the broker wrote in its last epoch, its replicas leave the ISRs and the ELRs (KIP-966). A
    repetition by the same process returns its epoch again.

    previous_epoch: the epoch that the folder is complete for, otherwise -1.
    kept_topics: topics for which the folder is complete for the epoch `kept_topics_epoch`.
    """
    broker = image.brokers.get(broker_id)
    if broker is not None and broker.incarnation_id == incarnation_id:
        return Plan((), Joined(broker.epoch, has_lost=False))
    last = last_epoch(image, broker_id)
    epoch = last + 1
    records: list[Record] = [
        BrokerRecord(
            broker_id,
            incarnation_id,
            epoch,
            endpoints,
            rack,
            directory_id,
            _recorded(image, features),
        )
    ]
    if broker is None:
        records.append(BrokerFenced(broker_id, epoch))
    elif not broker.is_fenced:
        records.insert(0, BrokerFenced(broker_id, broker.epoch))
    has_lost = last > 0 and previous_epoch != last
    if has_lost:
        keeps = broker is not None and directory_id == broker.directory_id != NO_DIRECTORY
        kept = kept_topics if kept_topics_epoch == last else ()
        existing = tuple(topic_id for topic_id in kept if image.topic_by_id(topic_id) is not None)
        records.append(BrokerLost(broker_id, epoch, keeps, existing))
    return Plan(tuple(records), Joined(epoch, has_lost))


def _recorded(
    image: MetadataImage, features: tuple[SupportedLevels, ...]
) -> tuple[SupportedLevels, ...]:
    """Return the supported levels for a registration; none while older brokers would read it."""
    return features if image.feature_level(METADATA_VERSION) >= LEVELS_SINCE else ()


def last_epoch(image: MetadataImage, broker_id: int) -> int:
    """Return the epoch of the last registration of a broker, 0 before the first."""
    broker = image.brokers.get(broker_id)
    return image.unregistered.get(broker_id, 0) if broker is None else broker.epoch


def plan_fence(image: MetadataImage, brokers: Mapping[int, int]) -> Plan[list[int]]:
    """Fence these brokers, by id with their epochs; return the fenced ones.

    A broker that has registered again since is not fenced.
    """
    fenced = [
        BrokerFenced(broker_id, epoch)
        for broker_id, epoch in sorted(brokers.items())
        if (registration := image.brokers.get(broker_id)) is not None
        and registration.epoch == epoch
        and not registration.is_fenced
    ]
    return Plan(tuple(fenced), [record.broker_id for record in fenced])


def plan_lose(image: MetadataImage, broker_id: int, epoch: int) -> Plan[None]:
    """Fence a broker whose logs lack records, and have its replicas leave the ISRs and the ELRs.

    Raises STALE_BROKER_EPOCH for another epoch than the present one.
    """
    broker = check_broker_epoch(image, broker_id, epoch)
    lost = BrokerLost(broker_id, epoch, keeps_folder=True)
    return Plan((lost,) if broker.is_fenced else (BrokerFenced(broker_id, epoch), lost), None)


def plan_unfence(image: MetadataImage, broker_id: int, epoch: int) -> Plan[None]:
    """Let a broker lead again. Raises STALE_BROKER_EPOCH for another epoch than the present one."""
    broker = check_broker_epoch(image, broker_id, epoch)
    records = (BrokerUnfenced(broker_id, epoch),) if broker.is_fenced else ()
    return Plan(records, None)


def is_noted(image: MetadataImage, broker_id: int, *, is_read_only: bool) -> bool:
    """Return whether the metadata shows if a broker can write, or has no records for that."""
    broker = image.brokers.get(broker_id)
    return (
        broker is None
        or broker.is_read_only == is_read_only
        or image.feature_level(METADATA_VERSION) < READ_ONLY_SINCE
    )


def plan_read_only(
    image: MetadataImage, broker_id: int, epoch: int, *, is_read_only: bool
) -> Plan[bool]:
    """Note whether a broker can write to its data folder; return whether that is news.

    Raises STALE_BROKER_EPOCH for another epoch than the present one.
    """
    check_broker_epoch(image, broker_id, epoch)
    if is_noted(image, broker_id, is_read_only=is_read_only):
        return Plan((), False)
    if is_read_only:
        return Plan((BrokerReadOnly(broker_id, epoch),), True)
    # A leader that cannot write stays while no other replica can lead. Now this one may.
    return Plan(tuple(reviewed(image, [BrokerWritable(broker_id, epoch)])), True)


def reviewed(image: MetadataImage, records: Sequence[Record]) -> list[Record]:
    """Return the records, followed by `LeadersReviewed` if they let it change a partition."""
    changed = image.apply_all(records, image.end)
    review = LeadersReviewed()
    has_effect = changed.apply(review).topics_by_id is not changed.topics_by_id
    return [*records, review] if has_effect else list(records)


def plan_unregister(image: MetadataImage, broker_id: int, ended_epoch: int | None) -> Plan[None]:
    """Remove a broker that will not return; its replicas stay assigned to it, and offline.

    ended_epoch: the epoch of a registration whose process is known to have ended, if any. A process
    that has started since has a higher one.

    Raises BROKER_ID_NOT_REGISTERED for an unknown broker, and INVALID_REQUEST for a broker
    that may be running: without a registration it could neither lead nor be fenced.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered"
        )
    if not broker.is_fenced or broker.epoch != ended_epoch:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} is running, or died less than a session timeout ago; only a "
            "stopped broker can be unregistered",
        )
    return Plan((BrokerUnregistered(broker_id, broker.epoch),), None)


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    """Return the broker. Raises STALE_BROKER_EPOCH unless it is registered in this epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered in epoch {epoch}"
        )
    return broker


def plan_forget_epochs(image: MetadataImage) -> Plan[None]:
    """Record that epochs of the producer ids in use may be lost, as after a power failure.

    The record is kept until all these ids are out of use, also after a later clean stop.
    """
    if image.forgotten_epochs_end == image.next_producer_id:
        return Plan((), None)
    return Plan((ForgottenEpochs(image.next_producer_id),), None)


def plan_producer_ids(image: MetadataImage, broker_id: int) -> Plan[range]:
    """Return a block of producer ids that were never allocated before.

    Raises UNKNOWN_SERVER_ERROR when all ids are allocated.
    """
    first = image.next_producer_id
    if first > _PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are allocated")
    end = first + PRODUCER_ID_BLOCK
    return Plan((ProducerIdBlock(broker_id, end),), range(first, end))


class UpgradeType(IntEnum):
    """`upgrade_type` on the wire."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """The wanted level of a feature."""

    name: str
    level: int
    upgrade_type: int


Declared = Mapping[tuple[int, int], tuple[SupportedLevels, ...]]
"""Supported levels by broker id and broker epoch."""
_NONE_DECLARED: Declared = MappingProxyType({})


def plan_update_features(
    image: MetadataImage,
    updates: Sequence[FeatureUpdate],
    declared: Declared = _NONE_DECLARED,
    *,
    validate_only: bool = False,
) -> Plan[None]:
    """Finalize all levels, or none.

    declared: the levels of brokers whose registrations have none.

    Of several levels of a feature the last one counts. Raises INVALID_UPDATE_VERSION, as Apache
    Kafka does, for an unknown feature or upgrade type, for a level that a registered broker does
    not support, and for one below the present one, unless a downgrade is requested and possible.
    """
    last = {update.name: update for update in updates}.values()
    for update in last:
        _check(image, update, declared)
    records = tuple(
        FeatureRecord(update.name, update.level)
        for update in last
        if update.level != image.feature_level(update.name)
    )
    _check_recordable(image, records)
    return Plan(() if validate_only else records, None)


def undeclared(image: MetadataImage) -> list[BrokerImage]:
    """Return the brokers that registered before their levels could be recorded, by id."""
    return [broker for _, broker in sorted(image.brokers.items()) if not broker.features]


def _check_recordable(image: MetadataImage, records: Sequence[FeatureRecord]) -> None:
    """Raise if an older broker could read the log up to now, and could not read these records."""
    level = image.apply_all(records, image.end + 1).feature_level(METADATA_VERSION)
    if records and level < LEVELS_SINCE:
        raise _rejected(
            f"levels need {METADATA_VERSION}={LEVELS_SINCE}; upgrade all brokers, and finalize it "
            "first or in the same request"
        )


def check_supported(
    image: MetadataImage, broker_id: int, supported: tuple[SupportedLevels, ...]
) -> None:
    """Raise UNSUPPORTED_VERSION unless a joining broker supports all finalized levels."""
    missing = unsupported(image.feature_levels, supported)
    if missing:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"broker {broker_id} does not support the feature levels of the cluster: "
            f"{', '.join(missing)}; start a version of lakelog that does",
        )


def _check(image: MetadataImage, update: FeatureUpdate, declared: Declared) -> None:
    text = f"{update.name}={update.level}"
    if update.upgrade_type not in list(UpgradeType):
        raise _rejected(f"{text}: unknown upgrade type {update.upgrade_type}")
    supported = {feature.name for feature in SUPPORTED}
    if update.name not in supported:
        names = ", ".join(sorted(supported))
        raise _rejected(f"{update.name} is no feature; expected one of {names}")
    levels = {update.name: update.level}
    own = unsupported(levels, SUPPORTED)
    if own:
        raise _rejected(f"unsupported level {own[0]}")
    for broker_id, broker in sorted(image.brokers.items()):
        features = broker.features or declared.get((broker_id, broker.epoch), ())
        if not unsupported(levels, features):
            continue
        advice = "upgrade or unregister it first"
        if not features and broker.is_fenced:
            advice = "it does not run; start it in the new version, or unregister it"
        raise _rejected(f"broker {broker_id} does not support {text}; {advice}")
    _check_direction(image, update)


def _check_direction(image: MetadataImage, update: FeatureUpdate) -> None:
    present = image.feature_level(update.name)
    if update.level >= present:
        return
    text = f"{update.name} is at level {present}"
    if update.upgrade_type == UpgradeType.UPGRADE:
        raise _rejected(f"{text}; a lower one needs the upgrade type of a downgrade")
    if update.name == METADATA_VERSION:
        raise _rejected(
            f"{text}, and cannot be lowered: older versions cannot read the metadata log"
        )


def _rejected(reason: str) -> KafkaError:
    """Return the error of a level that cannot be finalized."""
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, reason)
