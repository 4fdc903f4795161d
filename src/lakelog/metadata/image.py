"""The state of the cluster that the records of the metadata log lead to: immutable and shared.

`apply_all` returns a new image that shares all but the changed path with the old one (hash tries),
so that a record costs the same in a cluster of ten partitions and of a hundred thousand. Only the
start of a broker touches many partitions: all that it leads.

A change that is larger than one entry is a transaction of several (KIP-868). Its records are
`pending` until the last of its entries: no image shows a part of the change.

A record that refers to something unknown means a damaged log (`MetadataCorrupt`). The relations
between replicas, ISR, leader and epochs are asserted: only a wrong plan can violate them, and it
fails before its records are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, NamedTuple, cast

from rpds import HashTrieMap

from lakelog.base.endpoint import Endpoint
from lakelog.metadata.errors import MetadataCorrupt
from lakelog.metadata.failover import (
    NO_LEADER,
    PartitionImage,
    after_fencing,
    after_loss,
    elected,
    elected_uncleanly,
    may_lack_records,
    under_settings,
    without_broker,
    without_offline,
    without_read_only,
)
from lakelog.metadata.features import INITIAL, SupportedLevels
from lakelog.metadata.records import (
    NO_DIRECTORY,
    AbortTransaction,
    BeginTransaction,
    BrokerFenced,
    BrokerFencedV0,
    BrokerLost,
    BrokerReadOnly,
    BrokerRecord,
    BrokerUnfenced,
    BrokerUnregistered,
    BrokerWritable,
    ClusterRecord,
    ConfigRecord,
    EndTransaction,
    FeatureRecord,
    ForgottenEpochs,
    LeadersReviewed,
    PartitionRecord,
    ProducerIdBlock,
    Record,
    ResourceType,
    TopicRecord,
    TopicRemoved,
)

_TRANSACTION_TOPIC = "__transaction_state"
"""Its leaders are the transaction coordinators."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions, numbered from 0 without gaps; the map's order is arbitrary."""

    name: str
    topic_id: bytes
    partitions: HashTrieMap[int, PartitionImage]

    def partition(self, partition: int) -> PartitionImage | None:
        """Return a partition by its index, or `None`."""
        return self.partitions.get(partition)

    def __len__(self) -> int:
        """Return the number of partitions."""
        return len(self.partitions)


class BrokerImage(NamedTuple):
    """A registered broker, whose `epoch` rises at each start.

    Without endpoints, clients keep using the address that they connected to.
    """

    broker_id: int
    incarnation_id: bytes
    epoch: int
    endpoints: tuple[Endpoint, ...]
    rack: str | None
    directory_id: bytes = NO_DIRECTORY
    """The id of its data folder; zeros if it is not known."""
    features: tuple[SupportedLevels, ...] = ()
    """The levels that it supports; empty if it declared none."""
    is_fenced: bool = False
    """Whether it must not lead: it is starting, or it stopped or died."""
    is_read_only: bool = False
    """Whether it cannot write to its data folder."""

    def endpoint(self, listener_name: str) -> Endpoint | None:
        """Return the endpoint of this listener, else the first, else None."""
        named = (endpoint for endpoint in self.endpoints if endpoint.name == listener_name)
        return next(named, self.endpoints[0] if self.endpoints else None)


def metric_name(topic: str) -> str:
    """Return the topic's name in metrics, where '.' and '_' are the same character."""
    return topic.replace(".", "_")


_NO_CONFIG: HashTrieMap[str, str] = HashTrieMap()
MIN_ISR = "min.insync.replicas"
UNCLEAN = "unclean.leader.election.enable"
ELECTION_KEYS = frozenset({MIN_ISR, UNCLEAN})
"""Settings that decide about elections. The metadata has them for the whole cluster: brokers with
different files must come to the same leaders."""


class MetadataImage(NamedTuple):
    """The cluster after all entries below `end`, the index of the next entry of the metadata log.

    Use the methods for look-ups.
    """

    end: int = 0
    cluster_id: str | None = None
    brokers: HashTrieMap[int, BrokerImage] = HashTrieMap()
    topics_by_id: HashTrieMap[bytes, TopicImage] = HashTrieMap()
    topic_ids: HashTrieMap[str, bytes] = HashTrieMap()
    metric_names: HashTrieMap[str, str] = HashTrieMap()
    """Topics by their names in metrics; only names that another topic's could collide with."""
    config_map: HashTrieMap[tuple[int, str], HashTrieMap[str, str]] = HashTrieMap()
    next_producer_id: int = 0
    producer_id_owner: int = -1
    partition_count: int = 0
    forgotten_epochs_end: int = 0
    """Producer ids below it may have been used with epochs that no log contains any more."""
    unregistered: HashTrieMap[int, int] = HashTrieMap()
    """The last epochs of unregistered brokers, by id. Replicas may still be assigned to them."""
    features: HashTrieMap[str, int] = HashTrieMap()
    """Finalized levels; a feature without one has its initial level."""
    pending: tuple[Record, ...] | None = None
    """Records of the transaction that has begun, None if there is none. Nothing shows them yet."""

    @property
    def topics(self) -> Iterable[TopicImage]:
        """All topics, in arbitrary order."""
        return self.topics_by_id.values()

    @property
    def fenced(self) -> frozenset[int]:
        """Node ids of the brokers that must not lead: fenced ones and unregistered ones."""
        return _unable(self.brokers, self.unregistered)

    @property
    def read_only(self) -> frozenset[int]:
        """Node ids of the brokers that cannot write to their data folders."""
        return _read_only(self.brokers)

    @property
    def feature_levels(self) -> Mapping[str, int]:
        """The finalized levels of all features, by name."""
        return {**INITIAL, **dict(self.features.items())}

    def feature_level(self, name: str) -> int:
        """Return the finalized level of a feature."""
        return self.features.get(name, INITIAL.get(name, 0))

    def broker_epoch(self, broker_id: int) -> int:
        """Return the epoch of a broker's registration, -1 if it is not registered."""
        broker = self.brokers.get(broker_id)
        return -1 if broker is None else broker.epoch

    def topic(self, name: str) -> TopicImage | None:
        """Return a topic by its name, or `None`."""
        topic_id = self.topic_ids.get(name)
        return None if topic_id is None else self.topics_by_id[topic_id]

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        """Return a topic by its id (KIP-516), or `None`."""
        return self.topics_by_id.get(topic_id)

    def partition(self, topic: str | bytes, index: int) -> PartitionImage | None:
        """Return a partition by its topic's name or id, and its index, or `None`."""
        topic_image = self.topic(topic) if isinstance(topic, str) else self.topic_by_id(topic)
        return None if topic_image is None else topic_image.partition(index)

    def configs(self, resource_type: ResourceType, name: str) -> Mapping[str, str]:
        """Return the settings of this resource itself, without inherited ones.

        An empty mapping stands for a resource without settings.
        """
        return self.config_map.get((int(resource_type), name), _NO_CONFIG)

    def min_isr(self, topic: str) -> int:
        """Return `min.insync.replicas` of a topic, as elections use it."""
        return int(_setting(self.config_map, topic, MIN_ISR) or 1)

    def may_lose_records(self, topic: str) -> bool:
        """Return whether a topic has `unclean.leader.election.enable`."""
        return _may_lose_records(self.config_map, topic)

    def apply(self, record: Record) -> MetadataImage:
        """Return the image after one more record of the same entry.

        Raises `MetadataCorrupt` for a record that refers to an unknown topic.
        """
        return self.apply_all((record,), self.end)

    def apply_all(self, records: Iterable[Record], end: int) -> MetadataImage:
        """Return the image after the records of one entry of the log, which then ends at `end`.

        Raises `MetadataCorrupt` like `apply`.
        """
        assert end >= self.end, "the index of the image never falls"
        draft = _Draft(self)
        _apply(draft, records)
        return draft.finish(end)

    def to_records(self) -> list[Record]:
        """Return the records of a snapshot: the shortest log that leads to this image."""
        records: list[Record] = []
        if self.cluster_id is not None:
            records.append(ClusterRecord(self.cluster_id))
        records += [BrokerRecord(*b[:-2]) for _, b in sorted(self.brokers.items())]
        records += [
            BrokerFenced(b.broker_id, b.epoch)
            for _, b in sorted(self.brokers.items())
            if b.is_fenced
        ]
        records += [
            BrokerReadOnly(b.broker_id, b.epoch)
            for _, b in sorted(self.brokers.items())
            if b.is_read_only
        ]
        records += [BrokerUnregistered(*entry) for entry in sorted(self.unregistered.items())]
        if self.next_producer_id:
            records.append(ProducerIdBlock(self.producer_id_owner, self.next_producer_id))
        if self.forgotten_epochs_end:
            records.append(ForgottenEpochs(self.forgotten_epochs_end))
        records += [FeatureRecord(*feature) for feature in sorted(self.features.items())]
        for name in sorted(self.topic_ids):
            topic = self.topics_by_id[self.topic_ids[name]]
            records.append(TopicRecord(name, topic.topic_id))
            records += [
                PartitionRecord(topic.topic_id, *partition)
                for _, partition in sorted(topic.partitions.items())
            ]
        records += [
            ConfigRecord(*resource, key, value)
            for resource, values in sorted(self.config_map.items())
            for key, value in sorted(values.items())
        ]
        if self.pending is not None:
            records += [BeginTransaction(), *self.pending]
        return records


def _setting(
    config_map: HashTrieMap[tuple[int, str], HashTrieMap[str, str]], topic: str, key: str
) -> str | None:
    """Return a topic's setting, else the default of all brokers, else None."""
    own = config_map.get((int(ResourceType.TOPIC), topic), _NO_CONFIG)
    default = config_map.get((int(ResourceType.BROKER), ""), _NO_CONFIG)
    return own.get(key) or default.get(key)


def _may_lose_records(
    config_map: HashTrieMap[tuple[int, str], HashTrieMap[str, str]], topic: str
) -> bool:
    return (_setting(config_map, topic, UNCLEAN) or "").lower() == "true"


class _Draft:
    """The fields of an image to which the records of one entry are being applied."""

    def __init__(self, image: MetadataImage) -> None:
        self.cluster_id = image.cluster_id
        self.brokers = image.brokers
        self.topics_by_id = image.topics_by_id
        self.topic_ids = image.topic_ids
        self.metric_names = image.metric_names
        self.config_map = image.config_map
        self.next_producer_id = image.next_producer_id
        self.producer_id_owner = image.producer_id_owner
        self.partition_count = image.partition_count
        self.forgotten_epochs_end = image.forgotten_epochs_end
        self.unregistered = image.unregistered
        self.features = image.features
        # A list: with a tuple, each change of the record type would copy all earlier records.
        self.pending = None if image.pending is None else list(image.pending)

    def finish(self, end: int) -> MetadataImage:
        return MetadataImage(
            end,
            self.cluster_id,
            self.brokers,
            self.topics_by_id,
            self.topic_ids,
            self.metric_names,
            self.config_map,
            self.next_producer_id,
            self.producer_id_owner,
            self.partition_count,
            self.forgotten_epochs_end,
            self.unregistered,
            self.features,
            None if self.pending is None else tuple(self.pending),
        )

    def min_isr(self, topic: TopicImage) -> int:
        return int(_setting(self.config_map, topic.name, MIN_ISR) or 1)

    def may_lose_records(self, topic: TopicImage) -> bool:
        return _may_lose_records(self.config_map, topic.name)

    def existing(self, topic_id: bytes) -> TopicImage:
        topic = self.topics_by_id.get(topic_id)
        if topic is None:
            raise MetadataCorrupt(f"a record names a topic that does not exist: {topic_id.hex()}")
        return topic


def _apply(draft: _Draft, records: Iterable[Record]) -> None:
    for kind, run in groupby(records, type):
        if draft.pending is not None and kind not in _MARKERS:
            draft.pending.extend(run)
        elif kind is PartitionRecord:
            _apply_partitions(draft, cast("Iterable[PartitionRecord]", run))
        else:
            apply = _APPLY[kind]
            for record in run:
                apply(draft, record)


def _apply_begin(draft: _Draft, _: BeginTransaction) -> None:
    if draft.pending is not None:
        raise MetadataCorrupt("a transaction of the metadata begins before another one ends")
    draft.pending = []


def _apply_end(draft: _Draft, _: EndTransaction) -> None:
    if draft.pending is None:
        raise MetadataCorrupt("a transaction of the metadata ends that has not begun")
    records, draft.pending = draft.pending, None
    _apply(draft, records)


def _apply_abort(draft: _Draft, _: AbortTransaction) -> None:
    if draft.pending is None:
        raise MetadataCorrupt("a transaction of the metadata is aborted that has not begun")
    draft.pending = None


_MARKERS = (BeginTransaction, EndTransaction, AbortTransaction)


def _apply_feature(draft: _Draft, record: FeatureRecord) -> None:
    draft.features = draft.features.insert(record.name, record.level)


def _apply_cluster(draft: _Draft, record: ClusterRecord) -> None:
    draft.cluster_id = record.cluster_id


def _apply_broker(draft: _Draft, record: BrokerRecord) -> None:
    former = draft.brokers.get(record.broker_id)
    broker = BrokerImage(*record, is_fenced=former is not None and former.is_fenced)
    last = draft.unregistered.get(record.broker_id, 0) if former is None else former.epoch
    assert record.epoch > last, "a broker's epoch rises at each start"
    draft.brokers = draft.brokers.insert(record.broker_id, broker)
    draft.unregistered = draft.unregistered.discard(record.broker_id)
    fenced = _fenced(draft)

    def restarted(_: TopicImage, partition: PartitionImage) -> PartitionImage:
        partition = without_offline(partition, record.broker_id)
        if partition.leader == record.broker_id and len(partition.isr) == 1:
            return partition.led_by(record.broker_id, partition.isr)
        return without_broker(partition, record.broker_id, fenced | {record.broker_id})

    _change_partitions(draft, restarted)


def _apply_fenced_v0(draft: _Draft, record: BrokerFencedV0) -> None:
    _set_fenced(draft, record, is_fenced=True)
    fenced = _fenced(draft)

    def stopped(topic: TopicImage, partition: PartitionImage) -> PartitionImage:
        partition = without_broker(partition, record.broker_id, fenced)
        return _elected_uncleanly(draft, topic, partition, fenced)

    _change_partitions(draft, stopped)


def _apply_fenced(draft: _Draft, record: BrokerFenced) -> None:
    _set_fenced(draft, record, is_fenced=True)
    fenced = _fenced(draft)

    def stopped(topic: TopicImage, partition: PartitionImage) -> PartitionImage:
        if record.broker_id not in partition.isr:
            return partition
        min_isr = draft.min_isr(topic)
        partition = after_fencing(partition, record.broker_id, fenced, min_isr)
        return _elected_uncleanly(draft, topic, partition, fenced)

    _change_partitions(draft, stopped)


def _apply_lost(draft: _Draft, record: BrokerLost) -> None:
    fenced = _fenced(draft)
    assert record.broker_id in fenced, "a broker that lost data is fenced"
    kept_topics = frozenset(record.kept_topics)

    def lost(topic: TopicImage, partition: PartitionImage) -> PartitionImage:
        if record.broker_id not in partition.replicas or topic.topic_id in kept_topics:
            return partition
        min_isr, keeps = draft.min_isr(topic), record.keeps_folder
        return after_loss(partition, record.broker_id, fenced, min_isr, keeps_folder=keeps)

    _change_partitions(draft, lost)


def _apply_unfenced(draft: _Draft, record: BrokerUnfenced) -> None:
    _set_fenced(draft, record, is_fenced=False)
    fenced = _fenced(draft)
    _change_partitions(draft, lambda topic, partition: _elected(draft, topic, partition, fenced))


def _apply_read_only(draft: _Draft, record: BrokerReadOnly) -> None:
    _put_broker(draft, _registered(draft, record)._replace(is_read_only=True))
    _change_partitions(draft, lambda topic, partition: partition)


def _apply_writable(draft: _Draft, record: BrokerWritable) -> None:
    _put_broker(draft, _registered(draft, record)._replace(is_read_only=False))


def _apply_unregistered(draft: _Draft, record: BrokerUnregistered) -> None:
    """Remove a fenced broker, which leads nothing. A snapshot names brokers removed before it."""
    broker = draft.brokers.get(record.broker_id)
    if broker is not None and (broker.epoch != record.epoch or not broker.is_fenced):
        raise MetadataCorrupt(f"broker {record.broker_id} is unregistered but not fenced")
    draft.brokers = draft.brokers.discard(record.broker_id)
    draft.unregistered = draft.unregistered.insert(record.broker_id, record.epoch)


def _apply_reviewed(draft: _Draft, _: LeadersReviewed) -> None:
    fenced = _fenced(draft)

    def reviewed(topic: TopicImage, partition: PartitionImage) -> PartitionImage:
        return _elected(draft, topic, under_settings(partition, draft.min_isr(topic)), fenced)

    _change_partitions(draft, reviewed)


def _set_fenced(
    draft: _Draft, record: BrokerFenced | BrokerFencedV0 | BrokerUnfenced, *, is_fenced: bool
) -> None:
    _put_broker(draft, _registered(draft, record)._replace(is_fenced=is_fenced))


def _registered(
    draft: _Draft,
    record: BrokerFenced | BrokerFencedV0 | BrokerUnfenced | BrokerReadOnly | BrokerWritable,
) -> BrokerImage:
    broker = draft.brokers.get(record.broker_id)
    if broker is None or broker.epoch != record.epoch:
        raise MetadataCorrupt(f"no broker {record.broker_id} registered in epoch {record.epoch}")
    return broker


def _put_broker(draft: _Draft, broker: BrokerImage) -> None:
    draft.brokers = draft.brokers.insert(broker.broker_id, broker)


def _fenced(draft: _Draft) -> frozenset[int]:
    return _unable(draft.brokers, draft.unregistered)


def _read_only(brokers: Mapping[int, BrokerImage]) -> frozenset[int]:
    return frozenset(node_id for node_id, broker in brokers.items() if broker.is_read_only)


def _unable(brokers: Mapping[int, BrokerImage], unregistered: Mapping[int, int]) -> frozenset[int]:
    return frozenset(node_id for node_id, broker in brokers.items() if broker.is_fenced).union(
        unregistered
    )


def _elected(
    draft: _Draft, topic: TopicImage, partition: PartitionImage, fenced: frozenset[int]
) -> PartitionImage:
    if partition.leader == NO_LEADER:
        partition = elected(partition, fenced, draft.min_isr(topic))
    return _elected_uncleanly(draft, topic, partition, fenced)


def _elected_uncleanly(
    draft: _Draft, topic: TopicImage, partition: PartitionImage, fenced: frozenset[int]
) -> PartitionImage:
    if partition.leader != NO_LEADER or not draft.may_lose_records(topic):
        return partition
    return elected_uncleanly(partition, fenced)


def _change_partitions(
    draft: _Draft, change: Callable[[TopicImage, PartitionImage], PartitionImage]
) -> None:
    """Replace the partitions for which `change` returns another one.

    After every such change, read-only brokers lead only partitions that no other can.
    """
    fenced, read_only = _fenced(draft), _read_only(draft.brokers)
    for topic in draft.topics_by_id.values():
        new = {}
        for number, partition in topic.partitions.items():
            changed = change(topic, partition)
            if read_only:
                min_isr = draft.min_isr(topic)
                changed = without_read_only(changed, read_only, fenced, min_isr)
            if changed is not partition:
                _note_change(draft, topic, partition, changed)
                new[number] = changed
        if new:
            _put_partitions(draft, topic, new)


def _apply_topic(draft: _Draft, record: TopicRecord) -> None:
    if record.name in draft.topic_ids:
        raise MetadataCorrupt(f"topic {record.name} is created twice")
    topic = TopicImage(record.name, record.topic_id, HashTrieMap())
    draft.topics_by_id = draft.topics_by_id.insert(record.topic_id, topic)
    draft.topic_ids = draft.topic_ids.insert(record.name, record.topic_id)
    shown = metric_name(record.name)
    if "_" in shown:
        draft.metric_names = draft.metric_names.insert(shown, record.name)


def _apply_partitions(draft: _Draft, records: Iterable[PartitionRecord]) -> None:
    for topic_id, run in groupby(records, lambda record: record.topic_id):
        topic = draft.existing(topic_id)
        changed: dict[int, PartitionImage] = {}
        for record in run:
            partition = PartitionImage(*record[1:])
            old = changed.get(record.partition, topic.partitions.get(record.partition))
            _check_partition(partition, old)
            _note_change(draft, topic, old, partition)
            changed[record.partition] = partition
        _put_partitions(draft, topic, changed)


def _check_partition(new: PartitionImage, old: PartitionImage | None) -> None:
    assert set(new.isr) <= set(new.replicas), "the ISR is a subset of the replicas"
    assert new.leader == -1 or new.leader in new.isr, "the leader is in the ISR"
    assert set(new.elr) <= set(new.replicas).difference(new.isr), "the ELR is outside of the ISR"
    assert set(new.offline) <= set(new.replicas), "offline replicas are replicas"
    assert not set(new.offline).intersection(new.isr), "an offline replica is in no ISR"
    if old is not None:
        assert new.leader_epoch >= old.leader_epoch, "the leader epoch never falls"
        assert new.partition_epoch > old.partition_epoch, "each change raises the partition epoch"


def _put_partitions(
    draft: _Draft, topic: TopicImage, changed: Mapping[int, PartitionImage]
) -> None:
    whole = len(changed) > 1 and changed.keys() >= topic.partitions.keys()
    partitions = HashTrieMap(changed) if whole else topic.partitions
    if not whole:
        for number, partition in changed.items():
            partitions = partitions.insert(number, partition)
    assert max(changed) < len(partitions), "partitions are numbered without gaps"
    draft.partition_count += len(partitions) - len(topic)
    draft.topics_by_id = draft.topics_by_id.insert(
        topic.topic_id, TopicImage(topic.name, topic.topic_id, partitions)
    )


def _note_change(
    draft: _Draft, topic: TopicImage, old: PartitionImage | None, new: PartitionImage
) -> None:
    """Note that epochs of all producer ids may be lost if a coordinator may lack records.

    It could otherwise assign an epoch again that a producer still uses.
    """
    if topic.name == _TRANSACTION_TOPIC and old is not None and may_lack_records(old, new):
        draft.forgotten_epochs_end = draft.next_producer_id


def _apply_topic_removed(draft: _Draft, record: TopicRemoved) -> None:
    topic = draft.existing(record.topic_id)
    draft.topics_by_id = draft.topics_by_id.remove(topic.topic_id)
    draft.topic_ids = draft.topic_ids.remove(topic.name)
    draft.metric_names = draft.metric_names.discard(metric_name(topic.name))
    draft.config_map = draft.config_map.discard((int(ResourceType.TOPIC), topic.name))
    draft.partition_count -= len(topic)


def _apply_config(draft: _Draft, record: ConfigRecord) -> None:
    resource = (record.resource_type, record.resource_name)
    values = draft.config_map.get(resource, _NO_CONFIG)
    if record.value is None:
        values = values.discard(record.key)
    else:
        values = values.insert(record.key, record.value)
    configs = draft.config_map.insert(resource, values)
    draft.config_map = configs if values else configs.remove(resource)


def _apply_producer_ids(draft: _Draft, record: ProducerIdBlock) -> None:
    if record.next_id < draft.next_producer_id:
        raise MetadataCorrupt(
            f"the next producer id falls from {draft.next_producer_id} to {record.next_id}"
        )
    draft.next_producer_id = record.next_id
    draft.producer_id_owner = record.broker_id


def _apply_forgotten_epochs(draft: _Draft, record: ForgottenEpochs) -> None:
    assert draft.forgotten_epochs_end <= record.end_id <= draft.next_producer_id
    draft.forgotten_epochs_end = record.end_id


_APPLY: dict[type[Any], Callable[[_Draft, Any], None]] = {
    ClusterRecord: _apply_cluster,
    BrokerRecord: _apply_broker,
    BrokerFencedV0: _apply_fenced_v0,
    BrokerFenced: _apply_fenced,
    BrokerLost: _apply_lost,
    BrokerUnfenced: _apply_unfenced,
    BrokerReadOnly: _apply_read_only,
    BrokerWritable: _apply_writable,
    BrokerUnregistered: _apply_unregistered,
    TopicRecord: _apply_topic,
    LeadersReviewed: _apply_reviewed,
    TopicRemoved: _apply_topic_removed,
    ConfigRecord: _apply_config,
    ProducerIdBlock: _apply_producer_ids,
    ForgottenEpochs: _apply_forgotten_epochs,
    FeatureRecord: _apply_feature,
    BeginTransaction: _apply_begin,
    EndTransaction: _apply_end,
    AbortTransaction: _apply_abort,
}
