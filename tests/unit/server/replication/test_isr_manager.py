"""A leader's ISR, over its own controller."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.failover import PartitionImage
from lakelog.metadata.image import BrokerImage, MetadataImage
from lakelog.metadata.plan import Plan
from lakelog.metadata.records import BrokerFenced, BrokerRecord, BrokerUnfenced, PartitionRecord
from lakelog.protocol.brokers import AlterPartitionRequest, AlterPartitionResponse
from lakelog.replica.followers import Followers
from lakelog.replica.partition import Partition
from lakelog.replica.role import Role
from lakelog.server.replication.isr_manager import IsrManager
from late_answers import ControllersLog, LateAnswers
from memory_broker import MemoryBroker
from storage_kit import NOW, ManualClock, make_batch

LEADER, FOLLOWER, EPOCH = 1, 2, 4


class Led:
    """A partition with a follower, whose fetches the test reports."""

    def __init__(self, world: MemoryBroker) -> None:
        self.world = world
        self.topic_id = world.create("t")
        follower = BrokerRecord(FOLLOWER, b"f" * 16, EPOCH, (), None)
        state = PartitionRecord(self.topic_id, 0, (LEADER, FOLLOWER), (LEADER,), LEADER, 1, 1)
        self.submit(follower, state)
        world.append("t", count=3)
        world._server._replicas.isr_manager.start()

    def submit(self, *records: BrokerRecord | BrokerFenced | PartitionRecord) -> None:
        def plan(image: MetadataImage) -> Plan[None]:
            return Plan(records, None)

        self.world.run(self.world.broker.metadata.submit(plan))

    def fetch(self, offset: int, epoch: int = EPOCH) -> None:
        now_ms = self.world.clock.monotonic_ms()
        self.world.partition("t").note_fetch(FOLLOWER, epoch, offset, now_ms)

    def state(self) -> PartitionImage:
        return self.world.broker.image.topics_by_id[self.topic_id].partitions[0]


@pytest.fixture
def led() -> Iterator[Led]:
    with MemoryBroker(replica_lag_time_max_ms="2000") as world:
        yield Led(world)


def test_a_follower_joins_when_it_has_caught_up_and_leaves_when_it_stops(led: Led) -> None:
    led.world.pass_time(1)
    assert led.state().isr == (LEADER,)
    led.fetch(3)
    led.world.pass_time(1)
    assert led.state().isr == (LEADER, FOLLOWER)
    led.world.append("t")
    assert led.world.partition("t").watermark.offset == 3
    led.world.pass_time(4)
    assert led.state().isr == (LEADER,)
    assert led.world.partition("t").watermark.offset == 4


def test_a_refused_proposal_does_not_hold_the_watermark_back(led: Led) -> None:
    led.fetch(3)
    wanted: dict[Partition, tuple[int, ...]] = {led.world.partition("t"): (LEADER, FOLLOWER)}
    in_sync = led.world._server._replicas.isr_manager
    known = in_sync._propose(wanted)
    led.submit(BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.run(in_sync._ask(known, wanted))
    assert led.state().isr == (LEADER,)
    assert led.world.partition("t").watermark.offset == 4


def test_a_refusal_leaves_open_whether_an_earlier_request_arrives_later(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It proposes the member for the same state, and the member may be unfenced again by then."""
    led.fetch(3)
    wanted: dict[Partition, tuple[int, ...]] = {led.world.partition("t"): (LEADER, FOLLOWER)}
    in_sync = led.world._server._replicas.isr_manager
    known = in_sync._propose(wanted)
    with monkeypatch.context() as patched:
        patched.setattr(in_sync, "_alter", _lost)
        led.world.run(in_sync._ask(known, wanted))
    led.submit(BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.run(in_sync._ask(known, wanted))
    assert led.world.partition("t").watermark.offset == 3
    led.world.pass_time(1.5)
    assert led.state().partition_epoch > known[led.world.partition("t")].partition_epoch
    assert led.world.partition("t").watermark.offset == 4


async def _lost(request: AlterPartitionRequest) -> AlterPartitionResponse:
    raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)


async def _bug(request: AlterPartitionRequest) -> AlterPartitionResponse:
    raise ValueError("planted")


def test_isrs_change_again_after_bugs(led: Led, caplog: pytest.LogCaptureFixture) -> None:
    in_sync = led.world._server._replicas.isr_manager
    led.fetch(3)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(in_sync, "_image", lambda: None)
        led.world.pass_time(2)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(in_sync, "_alter", _bug)
        led.world.pass_time(1)
    assert led.state().isr == (LEADER,)
    led.fetch(3)
    led.world.pass_time(1)
    assert led.state().isr == (LEADER, FOLLOWER)
    assert caplog.text.count("the check of ISRs failed") == 1
    assert caplog.text.count("the change of ISRs failed") == 1


def test_a_member_counts_from_the_period_that_found_it_caught_up(led: Led) -> None:
    led.fetch(3)
    led.world._server._replicas.isr_manager._period()
    led.world.partition("t").append(make_batch(1), NOW)
    assert led.world.partition("t").watermark.offset == 3


def test_a_proposal_without_an_answer_is_repeated(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(led.world._server._replicas.isr_manager, "_alter", _lost)
        led.fetch(3)
        led.world.pass_time(1)
    led.submit(BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.pass_time(2)
    assert led.state().isr == (LEADER,)
    assert led.world.partition("t").watermark.offset == 4


def test_a_lost_answer_opens_no_proposal_of_a_partition_that_was_not_led_meanwhile(
    led: Led, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise no refusal could close the next one."""
    led.fetch(3)
    partition = led.world.partition("t")
    wanted: dict[Partition, tuple[int, ...]] = {partition: (LEADER, FOLLOWER)}
    in_sync = led.world._server._replicas.isr_manager
    known = in_sync._propose(wanted)

    async def lost(request: AlterPartitionRequest) -> AlterPartitionResponse:
        role = partition.role
        for partition.role in (role._replace(followers=()), role):
            in_sync.note_role(partition)
        raise KafkaError(ErrorCode.REQUEST_TIMED_OUT)

    with monkeypatch.context() as patched:
        patched.setattr(in_sync, "_alter", lost)
        led.world.run(in_sync._ask(known, wanted))
    known = in_sync._propose(wanted)
    led.submit(BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.run(in_sync._ask(known, wanted))
    assert partition.watermark.offset == 4


def test_a_member_that_joined_and_was_fenced_at_once_does_not_count(led: Led) -> None:
    led.fetch(3)
    partition, old = led.world.partition("t"), led.state()
    in_sync = led.world._server._replicas.isr_manager
    in_sync._propose({partition: (LEADER, FOLLOWER)})
    joined = PartitionRecord(
        led.topic_id,
        *old._replace(isr=(LEADER, FOLLOWER), partition_epoch=old.partition_epoch + 1),
    )
    led.submit(joined, BrokerFenced(FOLLOWER, EPOCH))
    led.world.append("t")
    led.world.pass_time(1)
    assert led.state().isr == (LEADER,)
    assert partition.watermark.offset == 4


def test_a_partition_that_went_offline_with_an_open_proposal_keeps_its_isr(led: Led) -> None:
    in_sync = led.world._server._replicas.isr_manager
    partition = led.world.partition("t")
    led.fetch(3)
    in_sync._propose({partition: (LEADER, FOLLOWER)})
    partition.take_offline("the disk failed")
    assert not partition.serves
    found = in_sync._proposals(led.world.clock.monotonic_ms(), 2000, 1200)
    assert found == {partition: (LEADER,)}


def visits(partitions: int) -> tuple[int, int, int]:
    """Return the partitions visited by the first check, an idle one, and one after one append."""
    brokers = {FOLLOWER: BrokerImage(FOLLOWER, b"f" * 16, EPOCH, (), None)}
    image: Any = SimpleNamespace(brokers=brokers)
    clock, tasks = ManualClock(), cast("Any", None)
    in_sync = IsrManager(LEADER, lambda: image, cast("Any", None), 2000, clock, tasks)
    visited: list[Partition] = []

    class Idle:
        """A partition whose follower waits at the end of its log."""

        role = Role(1, LEADER, True, (LEADER, FOLLOWER), (FOLLOWER,))
        watermark, epoch_start, serves = SimpleNamespace(offset=3), 0, True

        def __init__(self, number: int) -> None:
            self.key = (b"t" * 16, number)
            self.followers = Followers()
            self.followers.begin([FOLLOWER], 0)
            self.follower.note_fetch(EPOCH, 3, 3, 0)
            self.follower.idle_in = SimpleNamespace(fetched_ms=0)

        @property
        def follower(self) -> Any:
            return self.followers.get(FOLLOWER)

        @property
        def log(self) -> Any:
            visited.append(cast("Any", self))
            return SimpleNamespace(log_end_offset=3)

    def checked() -> int:
        visited.clear()
        assert in_sync._proposals(1000, 2000, 1200) == {}
        return len(visited)

    idle = [Idle(number) for number in range(partitions)]
    for each in idle:
        in_sync.note_role(cast("Any", each))
    counts = [checked(), checked()]
    idle[7].follower.end_idle()
    counts.append(checked())
    assert checked() == 1, "it is not idle yet"
    image.brokers = dict(brokers)
    assert checked() == partitions
    return (counts[0], counts[1], counts[2])


@pytest.mark.parametrize("partitions", [300, 3000])
def test_a_check_costs_as_much_as_has_changed(partitions: int) -> None:
    assert visits(partitions) == (partitions, 0, 1)


def test_a_follower_that_stops_fetching_leaves_after_a_quiet_time(led: Led) -> None:
    """Its partition was idle, so that only the append makes it due."""
    led.fetch(3)
    led.world.pass_time(1)
    assert led.state().isr == (LEADER, FOLLOWER)
    follower = led.world.partition("t").followers.get(FOLLOWER)
    assert follower is not None
    in_sync = led.world._server._replicas.isr_manager
    session = FetchedAt(led.world.clock.monotonic_ms())
    follower.idle_in = session
    led.world.pass_time(10)
    assert led.state().isr == (LEADER, FOLLOWER)
    assert not in_sync._due
    led.world.append("t")
    follower.end_idle()
    led.world.pass_time(4)
    assert led.state().isr == (LEADER,)


def test_a_dead_follower_leaves_although_its_leader_stalls_all_the_time(led: Led) -> None:
    led.fetch(3)
    led.world.pass_time(1)
    assert led.state().isr == (LEADER, FOLLOWER)
    led.world.append("t")
    for _ in range(6):
        led.world.pass_time(0.9)
        led.world.loop._now += 1.2  # the process did not run
    led.world.pass_time(0.1)
    assert led.state().isr == (LEADER,)


def test_a_deleted_partition_is_never_due_again(led: Led) -> None:
    partition = led.world.partition("t")
    follower = partition.followers.get(FOLLOWER)
    assert follower is not None
    led.fetch(3)
    led.world.pass_time(1)
    follower.idle_in = FetchedAt(led.world.clock.monotonic_ms())
    led.world.pass_time(1)
    in_sync = led.world._server._replicas.isr_manager
    assert not in_sync._due
    partition.retire()
    in_sync.note_role(partition)
    follower.end_idle()
    assert not in_sync._due


class FetchedAt:
    """A session of the follower."""

    def __init__(self, fetched_ms: int) -> None:
        self.fetched_ms = fetched_ms


# Late requests and lost answers, over a link to another broker


@pytest.fixture
def scene(request: pytest.FixtureRequest) -> Iterator[LateAnswers]:
    made = LateAnswers(*request.param)
    yield made
    made.close()


def script(*outcomes: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("scene", [outcomes], indirect=True, ids=[", ".join(outcomes)])


def holds(scene: LateAnswers) -> bool:
    """Return whether each member that the controller may elect has all committed records."""
    follower = scene.partition.followers.get(2)
    assert follower is not None
    return follower.end_offset >= scene.partition.watermark.offset


@script("late", "answered")
def test_a_late_proposal_adds_no_member_that_lacks_committed_records(scene: LateAnswers) -> None:
    """Its repetition is refused, and the member may be unfenced again when the first arrives."""
    scene.pass_time(1)
    scene.log.write(BrokerFenced(2, 7))
    scene.append_without_the_follower()
    scene.reads_store = False
    scene.pass_time(10)
    assert ErrorCode.INELIGIBLE_REPLICA in scene.peer.codes
    scene.log.write(BrokerUnfenced(2, 7))
    scene.run(scene.peer.deliver_late())
    assert 2 in scene.state().isr
    assert holds(scene)


@script("answer lost", "answered")
def test_a_refused_repetition_does_not_settle_an_accepted_proposal(scene: LateAnswers) -> None:
    """INVALID_UPDATE_VERSION says that the image is old, and not which proposal was accepted."""
    scene.reads_store = False
    scene.pass_time(1)
    scene.append_without_the_follower()
    scene.pass_time(3)
    assert ErrorCode.INVALID_UPDATE_VERSION in scene.peer.codes
    assert 2 in scene.state().isr
    assert holds(scene)
    scene.reads_store = True
    scene.fetch(2, 4)
    scene.pass_time(3)
    assert scene.partition.watermark.offset == 4


@script("answered")
def test_an_accepted_proposal_counts_although_the_store_cannot_be_read(scene: LateAnswers) -> None:
    scene.reads_store = False
    scene.pass_time(1)
    scene.append_without_the_follower()
    scene.pass_time(3)
    assert scene.peer.codes[:2] == [ErrorCode.NONE, ErrorCode.INVALID_UPDATE_VERSION]
    assert holds(scene)


@script("answered")
def test_a_refusal_by_a_former_controller_does_not_settle_an_accepted_proposal(
    scene: LateAnswers,
) -> None:
    former = ControllersLog(scene.log.image)
    former.write(BrokerFenced(2, 7))
    scene.reads_store = False
    scene.pass_time(0.6)
    assert 2 in scene.state().isr
    scene.controller = scene.controller_with(former)
    scene.append_without_the_follower()
    scene.pass_time(3)
    assert ErrorCode.INELIGIBLE_REPLICA in scene.peer.codes
    assert holds(scene)


@script("answered")
def test_a_refused_member_does_not_hold_the_watermark_back(scene: LateAnswers) -> None:
    scene.log.write(BrokerFenced(2, 7))
    scene.reads_store = False
    scene.pass_time(0.9)
    scene.append_without_the_follower()
    assert set(scene.peer.codes) == {ErrorCode.INELIGIBLE_REPLICA}
    assert scene.partition.watermark.offset == 4


@script("answered")
def test_a_state_settles_a_proposal_only_after_the_partition_has_followed_it(
    scene: LateAnswers,
) -> None:
    """An image is visible before its subscribers have followed it, which may take long."""
    scene.reads_store = False
    scene.pass_time(0.6)
    scene.image = scene.log.image
    scene.append_without_the_follower()
    scene.pass_time(2)
    assert scene.peer.codes == [ErrorCode.NONE], "nothing is proposed for a state to come"
    assert holds(scene)
    scene.follow()
    scene.fetch(2, 4)
    scene.pass_time(2)
    assert scene.partition.watermark.offset == 4
