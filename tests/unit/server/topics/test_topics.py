"""Topics made without being asked for, over a metadata log on a real store."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.controller.brokers import plan_fence, plan_register_broker
from lakelog.metadata.controller.topics import MorePartitions, NewTopic
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.log import MetadataLog
from lakelog.metadata.records import ConfigRecord, Record, ResourceType, TopicRecord
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.protocol.topics import CreateTopicsRequest
from lakelog.runtime.aio import AsyncioTasks
from lakelog.runtime.posix import SystemClock, SystemRandom
from lakelog.server.authentication import Process
from lakelog.server.controller.relays import PATIENCE_S, ControllerLink, Relays
from lakelog.server.inter_broker.reachable_brokers import ReachableBrokers
from lakelog.server.inter_broker.silence import Silence
from lakelog.server.topics.topics import AUTO_CREATED_MAX, Topics, changes_internal, log_config
from memory_broker import MemoryBroker

OFFSETS, TRANSACTIONS = "__consumer_offsets", "__transaction_state"


def no_peer(node_id: int) -> None:
    """Know no other broker."""


class TopicsOfLog:
    """`commits` has the records of each entry since the broker was registered."""

    def __init__(self, log: MetadataLog, config: BrokerConfig, tasks: AsyncioTasks) -> None:
        self.log = log
        self.commits: list[tuple[Record, ...]] = []
        self.waiting: set[bytes] = set()
        self.capacity = 1 << 30
        self.on_prepare: Callable[[tuple[Record, ...]], object] = lambda records: None
        self.reachable_brokers = ReachableBrokers(1, tasks)
        relays = Relays(1, log, no_peer, no_peer, Silence(9.0, 0.25), tasks)
        self.topics = Topics(
            log,
            SeededRandom(1),
            self.check_capacity,
            self.waiting.__contains__,
            lambda: config,
            ControllerLink(1, log, no_peer, SystemClock(), tasks, relays),
            self.reachable_brokers,
        )
        log.subscribe(self)

    def check_capacity(self, partitions: int) -> None:
        if partitions > self.capacity:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "full")

    async def prepare(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        self.commits.append(records)
        self.on_prepare(records)

    async def follow(
        self, old: MetadataImage, new: MetadataImage, records: tuple[Record, ...]
    ) -> None:
        pass


def run(
    path: Path, scenario: Callable[[TopicsOfLog], Coroutine[Any, Any, None]], **settings: str
) -> None:
    async def whole() -> None:
        tasks = AsyncioTasks(asyncio.get_running_loop())
        store = EmbeddedStore(path / "metadata.db", SystemClock())
        log = MetadataLog(store, tasks, SystemRandom(), broker_id=1)
        try:
            await log.open(create=True)
            await log.submit(lambda image: plan_register_broker(image, 1, b"i" * 16, endpoints=()))
            config = BrokerConfig({key.replace("_", "."): value for key, value in settings.items()})
            await scenario(TopicsOfLog(log, config, tasks))
            await log.close()
        finally:
            tasks.close()

    asyncio.run(whole())


def test_many_names_are_one_change(tmp_path: Path) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        names = [f"topic-{number}" for number in range(100)]
        assert await cluster.topics.ensure([*names, *names, OFFSETS]) == {}
        assert len(cluster.commits) == 1
        assert sorted(cluster.log.image.topic_ids) == sorted([*names, OFFSETS])
        assert cluster.topics.partition_count(OFFSETS) == 50
        assert await cluster.topics.ensure(names) == {}
        assert len(cluster.commits) == 1

    run(tmp_path, scenario)


def test_a_name_that_cannot_be_does_not_keep_the_others_from_it(tmp_path: Path) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        refused = await cluster.topics.ensure(["a/b", "good", "__share_group_state", "bad name"])
        invalid = ErrorCode.INVALID_TOPIC_EXCEPTION
        assert refused == {"a/b": invalid, "bad name": invalid}
        assert sorted(cluster.log.image.topic_ids) == ["good"]

    run(tmp_path, scenario)


def test_one_request_makes_only_so_many(tmp_path: Path) -> None:
    """The rest is unknown until it is asked for again."""

    async def scenario(cluster: TopicsOfLog) -> None:
        names = [f"topic-{number}" for number in range(AUTO_CREATED_MAX + 7)]
        assert await cluster.topics.ensure(names) == {}
        assert len(cluster.log.image.topic_ids) == AUTO_CREATED_MAX
        await cluster.topics.ensure(names)
        assert len(cluster.log.image.topic_ids) == len(names)

    run(tmp_path, scenario)


def test_large_topics_are_made_as_one_change_can_hold_them(tmp_path: Path) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        assert await cluster.topics.ensure(["a", "b", "c", "d"]) == {}
        assert sorted(cluster.log.image.topic_ids) == ["a", "b", "c"]

    run(tmp_path, scenario, num_partitions="3000")


def test_the_group_topic_has_its_configured_defaults(tmp_path: Path) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        given = NewTopic(OFFSETS, -1, -1, configs=[("segment.bytes", "1048576")])
        topic = cluster.topics.with_defaults(given)
        assert (topic.partitions, topic.replication_factor) == (7, 1)
        assert dict(topic.configs) == {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": "1048576",
        }
        assert cluster.topics.with_defaults(NewTopic(OFFSETS, 3)).partitions == 3
        by_hand = NewTopic(OFFSETS, assignments=[(0, [1])])
        assert cluster.topics.with_defaults(by_hand).partitions == -1
        assert cluster.topics.with_defaults(NewTopic("orders")) == NewTopic("orders")
        await cluster.topics.ensure_group_topic()
        configs = cluster.log.image.configs(ResourceType.TOPIC, OFFSETS)
        assert configs["cleanup.policy"] == "compact"

    run(tmp_path, scenario, offsets_topic_num_partitions="7")


def test_a_topic_without_room_is_refused_and_the_others_errors_are_their_own(
    tmp_path: Path,
) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        cluster.capacity = 10
        wanted = [NewTopic("large", partitions=11), NewTopic("a/b", partitions=1)]
        results = await cluster.topics.create(wanted)
        codes = [result.error for result in results]
        assert codes == [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.INVALID_TOPIC_EXCEPTION]
        assert cluster.commits == []
        assert [result.error for result in await cluster.topics.create(wanted[:1])] == codes[:1]
        fits = await cluster.topics.create([NewTopic("small", partitions=10)])
        assert fits[0].error == ErrorCode.NONE
        more = await cluster.topics.add_partitions([MorePartitions("small", 21)])
        assert more[0].error == ErrorCode.KAFKA_STORAGE_ERROR

    run(tmp_path, scenario)


def test_a_topic_whose_logs_could_not_be_created_is_taken_back(tmp_path: Path) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        cluster.on_prepare = lambda records: cluster.waiting.update(
            record.topic_id for record in records if isinstance(record, TopicRecord)
        )
        (result,) = await cluster.topics.create([NewTopic("orders", partitions=1)])
        assert result.error == ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.topics.topic_id("orders") is None

    run(tmp_path, scenario)


def test_what_cannot_be_taken_back_is_unknown(tmp_path: Path) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        def fails_now(records: tuple[Record, ...]) -> None:
            cluster.waiting.update(r.topic_id for r in records if isinstance(r, TopicRecord))
            cluster.log._closed = True

        cluster.on_prepare = fails_now
        (result,) = await cluster.topics.create([NewTopic("orders", partitions=1)])
        assert result.error == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.topics.topic_id("orders") is not None
        cluster.log._closed = False

    run(tmp_path, scenario)


def test_added_partitions_without_space_are_reported(tmp_path: Path) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        (created,) = await cluster.topics.create([NewTopic("orders", partitions=1)])
        cluster.waiting.add(created.topic_id)
        (result,) = await cluster.topics.add_partitions([MorePartitions("orders", 3)])
        assert result.error == ErrorCode.REQUEST_TIMED_OUT
        assert cluster.topics.partition_count("orders") == 3
        assert cluster.topics.partition_count("unknown") == 0

    run(tmp_path, scenario)


def test_internal_topics_of_a_cluster_have_three_replicas_if_there_are_brokers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        wanted = NewTopic(TRANSACTIONS, -1, -1)

        def factor_and_min_isr() -> tuple[int, str | None]:
            topic = cluster.topics.with_defaults(wanted)
            return topic.replication_factor, dict(topic.configs)["min.insync.replicas"]

        assert factor_and_min_isr() == (1, "1")
        assert [each.__dict__["event"] for each in caplog.records] == ["few_replicas"]
        for node_id in (2, 3):
            register = partial(
                plan_register_broker,
                broker_id=node_id,
                incarnation_id=bytes([node_id]) * 16,
            )
            epoch = await cluster.log.submit(register)
        # The last one restarts while the topics are created.
        await cluster.log.submit(partial(plan_fence, brokers={3: epoch}))
        caplog.clear()
        assert factor_and_min_isr() == (3, "2")
        assert not caplog.records
        assert cluster.topics.with_defaults(NewTopic(OFFSETS, -1, -1)).replication_factor == 3

    run(tmp_path, scenario)


def test_a_broker_without_contact_neither_leads_nor_is_in_sync(tmp_path: Path) -> None:
    """Its process may have ended with the power of all hosts, and the store does not know yet."""
    other = Process(2, b"j" * 16)

    async def scenario(cluster: TopicsOfLog) -> None:
        await cluster.log.submit(lambda image: plan_register_broker(image, *other, endpoints=()))
        cluster.reachable_brokers.note_called(other)
        created = await cluster.topics.create([NewTopic("t", 2, 2)])
        assert [each.error for each in created] == [ErrorCode.NONE]
        grown = await cluster.topics.add_partitions([MorePartitions("t", 3)])
        assert [each.error for each in grown] == [ErrorCode.NONE]
        assert isrs(cluster, "t") == [(1,), (1,), (1,)]
        cluster.reachable_brokers.note(other)
        await cluster.topics.create([NewTopic("u", 2, 2)])
        assert sorted(isrs(cluster, "u")) == [(1, 2), (2, 1)]

    run(tmp_path, scenario)


def isrs(cluster: TopicsOfLog, name: str) -> list[tuple[int, ...]]:
    topic = cluster.log.image.topic(name)
    assert topic is not None
    return [each.isr for each in topic.partitions.values()]


def test_the_controller_has_as_much_time_to_create_topics_as_the_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(cluster: TopicsOfLog) -> None:
        sent: list[CreateTopicsRequest] = []
        carry_out = cluster.topics._link.carry_out

        async def noting(request: Any, *rest: Any, **named: Any) -> Any:
            sent.append(request)
            return await carry_out(request, *rest, **named)

        monkeypatch.setattr(cluster.topics._link, "carry_out", noting)
        await cluster.topics.ensure_group_topic()
        assert [each.timeout_ms for each in sent] == [PATIENCE_S * 1000]

    run(tmp_path, scenario)


GROUPS = "__consumer_offsets"


def test_settings_of_a_topic_override_the_broker_s() -> None:
    with MemoryBroker(log_retention_ms="5") as world:
        world.create("orders", retention_ms="7")
        image, config = world.broker.image, world.broker.config
        assert log_config(image, config, "orders").retention_ms == 7
        assert log_config(image, config, "no such topic").retention_ms == 5


def test_internal_topics_are_as_durable_as_any_topic(world: MemoryBroker) -> None:
    """Committed offsets must survive the same failures as the records."""
    world.start_coordinators()
    before = world.broker.image
    assert log_config(before, world.broker.config, GROUPS).durability != "fsync"
    world.create("orders", durability="fsync")
    image = world.broker.image
    assert log_config(image, world.broker.config, GROUPS).durability == "fsync"
    assert log_config(image, world.broker.config, "clicks").durability != "fsync"
    assert world.partition(GROUPS).log.config.durability == "fsync"
    assert changes_internal(before, image, ["orders"])
    assert not changes_internal(before, image, ["clicks"])


def test_a_leader_commits_with_no_fewer_replicas_than_elections_count_on() -> None:
    with MemoryBroker() as world:
        world.create("orders")
        image, config = world.broker.image, world.broker.config
        default = ConfigRecord(ResourceType.BROKER, "", "min.insync.replicas", "2")
        lower = config.with_dynamic({"min.insync.replicas": "2"}, {"min.insync.replicas": "1"})
        assert log_config(image, lower, "orders").min_insync_replicas == 1
        assert log_config(image.apply(default), lower, "orders").min_insync_replicas == 2
        higher = config.with_dynamic({}, {"min.insync.replicas": "3"})
        assert log_config(image.apply(default), higher, "orders").min_insync_replicas == 3
