"""Plans of a starting broker, and the allocation of producer ids."""

from __future__ import annotations

from collections.abc import Mapping

from lakelog.base.endpoint import Endpoint
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import BrokerImage, MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import (
    BrokerFenced,
    BrokerRecord,
    BrokerUnfenced,
    BrokerUnregistered,
    ClusterRecord,
    ForgottenEpochs,
    ProducerIdBlock,
    Record,
)

PRODUCER_ID_BLOCK = 1000
_PRODUCER_ID_MAX = (1 << 63) - 1


def plan_cluster_id(image: MetadataImage, wanted: str | None, fresh: str) -> Plan[str]:
    """Return the id of the cluster: the stored one, else `wanted`, else `fresh`.

    Raises INCONSISTENT_CLUSTER_ID when the stored id differs from `wanted`.
    """
    if image.cluster_id is None:
        cluster_id = wanted or fresh
        return Plan((ClusterRecord(cluster_id),), cluster_id)
    if wanted is not None and wanted != image.cluster_id:
        raise KafkaError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"the metadata store belongs to cluster {image.cluster_id}, and the data folder to "
            f"cluster {wanted}; use a new data folder, or the store of the folder's cluster",
        )
    return Plan((), image.cluster_id)


def plan_register_broker(
    image: MetadataImage,
    broker_id: int,
    incarnation_id: bytes,
    *,
    endpoints: tuple[Endpoint, ...] = (),
    rack: str | None = None,
    starts_fenced: bool = False,
) -> Plan[int]:
    """Return the broker's new epoch; the leader epochs of the partitions it leads rise too.

    A broker that `starts_fenced` hands over what its former process led, and leads again after
    `plan_unfence`. A repetition by the same process returns its epoch again (KIP-631).
    """
    known = image.brokers.get(broker_id)
    if known is not None and known.incarnation_id == incarnation_id:
        return Plan((), known.epoch)
    was_fenced = known is not None and known.is_fenced
    last = image.unregistered.get(broker_id, 0) if known is None else known.epoch
    epoch = last + 1
    records: list[Record] = [BrokerRecord(broker_id, incarnation_id, epoch, endpoints, rack)]
    if starts_fenced and known is not None and not was_fenced:
        records.insert(0, BrokerFenced(broker_id, known.epoch))
    elif starts_fenced and known is None:
        records.append(BrokerFenced(broker_id, epoch))
    elif was_fenced and not starts_fenced:
        records.append(BrokerUnfenced(broker_id, epoch))
    return Plan(tuple(records), epoch)


def plan_fence(image: MetadataImage, brokers: Mapping[int, int]) -> Plan[list[int]]:
    """Fence these brokers, by id with their epochs; return the fenced ones.

    A broker that has registered again since is not fenced.
    """
    fenced = [
        BrokerFenced(broker_id, epoch)
        for broker_id, epoch in sorted(brokers.items())
        if (known := image.brokers.get(broker_id)) is not None
        and known.epoch == epoch
        and not known.is_fenced
    ]
    return Plan(tuple(fenced), [record.broker_id for record in fenced])


def plan_unfence(image: MetadataImage, broker_id: int, epoch: int) -> Plan[None]:
    """Let a broker lead again. Raises STALE_BROKER_EPOCH for another epoch than the present one."""
    known = check_broker_epoch(image, broker_id, epoch)
    records = (BrokerUnfenced(broker_id, epoch),) if known.is_fenced else ()
    return Plan(records, None)


def plan_unregister(image: MetadataImage, broker_id: int, ended_epoch: int | None) -> Plan[None]:
    """Remove a broker that will not return; its replicas stay assigned to it, and offline.

    ended_epoch: the epoch of a registration whose process is known to have ended, if any. A process
    that has started since has a higher one.

    Raises BROKER_ID_NOT_REGISTERED for an unknown broker, and INVALID_REQUEST for a broker
    that may be running: without a registration it could neither lead nor be fenced.
    """
    known = image.brokers.get(broker_id)
    if known is None:
        raise KafkaError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, f"broker {broker_id} is not registered"
        )
    if not known.is_fenced or known.epoch != ended_epoch:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"broker {broker_id} is running, or died less than a session timeout ago; only a "
            "stopped broker can be unregistered",
        )
    return Plan((BrokerUnregistered(broker_id, known.epoch),), None)


def check_broker_epoch(image: MetadataImage, broker_id: int, epoch: int) -> BrokerImage:
    """Return the broker. Raises STALE_BROKER_EPOCH unless it is registered in this epoch."""
    known = image.brokers.get(broker_id)
    if known is None or known.epoch != epoch:
        raise KafkaError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is not registered in epoch {epoch}"
        )
    return known


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
