"""Leaders, in-sync and eligible replicas after brokers are fenced, unfenced, and lose data."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from failover_model import ClusterModel
from lakelog.metadata.failover import (
    AT_START,
    NO_LEADER,
    Failure,
    PartitionImage,
    after_failure,
    after_fencing,
    after_loss,
    elected,
    elected_uncleanly,
    has_eligible,
    under_settings,
    with_offline,
    without_broker,
    without_offline,
    without_read_only,
)
from lakelog.metadata.features import OFFLINE_SINCE

NOBODY: frozenset[int] = frozenset()


def partition(
    isr: tuple[int, ...],
    leader: int,
    elr: tuple[int, ...] = (),
    last_known: tuple[int, ...] = (),
    replicas: tuple[int, ...] = (1, 2, 3),
) -> PartitionImage:
    return PartitionImage(0, replicas, isr, leader, 5, 8, elr, last_known)


@pytest.mark.parametrize(
    ("before", "min_isr", "after", "epochs"),
    [
        (partition((1, 2, 3), 1), 2, partition((2, 3), 2), (6, 9)),
        (partition((1, 2, 3), 2), 2, partition((2, 3), 2), (5, 9)),
        (partition((2, 3), 2), 2, partition((2, 3), 2), (5, 8)),
        (partition((1, 3), 1), 1, partition((3,), 3), (6, 9)),
        (partition((1, 3), 1), 2, partition((3,), 3, (1,)), (6, 9)),
        (partition((1,), 1), 1, partition((), -1, (1,)), (6, 9)),
        (partition((1,), 1, (2,)), 2, partition((2,), 2, (1,)), (6, 9)),
        (partition((1,), 1, (2,)), 9, partition((2,), 2, (1,)), (6, 9)),
        (partition((1,), -1), 1, partition((), -1, (1,)), (5, 9)),
        (partition((2,), 2, (1,)), 2, partition((2,), 2, (1,)), (5, 8)),
    ],
    ids=[
        "leader", "follower", "not in sync", "leader of two", "leader of two, short", "last",
        "last, another is eligible", "more than there are replicas", "last, of an old log",
        "eligible",
    ],
)  # fmt: skip
def test_a_fenced_broker_leaves_the_isr_and_is_eligible_while_the_isr_is_short(
    before: PartitionImage, min_isr: int, after: PartitionImage, epochs: tuple[int, int]
) -> None:
    leader_epoch, partition_epoch = epochs
    wanted = after._replace(leader_epoch=leader_epoch, partition_epoch=partition_epoch)
    assert after_fencing(before, 1, {1}, min_isr) == wanted


def test_a_fenced_eligible_replica_is_not_elected() -> None:
    found = after_fencing(partition((1,), 1, (2, 3)), 1, {1, 2}, 2)
    assert (found.leader, found.isr, found.elr) == (3, (3,), (1, 2))


@pytest.mark.parametrize(
    ("before", "min_isr", "keeps_folder", "after"),
    [
        (partition((), -1, (1, 3)), 2, True, partition((), -1, (3,), (1,))),
        (partition((), -1, (1, 3)), 2, False, partition((), -1, (3,))),
        (partition((), -1, (1,), (3,)), 2, True, partition((), -1, (), (3, 1))),
        (partition((2,), 2, (1,)), 2, True, partition((2,), 2, (), (1,))),
        (partition((1, 2, 3), 2), 2, True, partition((2, 3), 2)),
        (partition((1,), -1), 1, True, partition((), -1, (), (1,))),
        (partition((), -1, (), (1,)), 1, False, partition((), -1)),
    ],
    ids=[
        "power", "folder", "second", "not needed", "enough others are in sync", "of an old log",
        "first power, then folder",
    ],
)  # fmt: skip
def test_a_broker_that_lost_data_is_not_eligible(
    before: PartitionImage, min_isr: int, keeps_folder: bool, after: PartitionImage
) -> None:
    found = after_loss(before, 1, {1}, min_isr, keeps_folder=keeps_folder)
    assert found == after._replace(partition_epoch=9)


def test_a_broker_that_was_not_eligible_has_nothing_to_lose() -> None:
    led = partition((2, 3), 2)
    assert after_loss(led, 1, {1}, 2, keeps_folder=True) is led
    assert after_loss(led, 1, {1}, 2, keeps_folder=False) is led


def test_a_leader_that_lost_its_log_hands_over() -> None:
    found = after_loss(partition((1, 2), 1), 1, NOBODY, 2, keeps_folder=True)
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (2, (2,), (), (1,))
    assert (found.leader_epoch, found.partition_epoch) == (6, 9)


@pytest.mark.parametrize(
    ("before", "read_only", "fenced", "min_isr", "after", "epochs"),
    [
        (partition((1, 2, 3), 1), {1}, (), 2, partition((2, 3), 2), (6, 9)),
        (partition((1, 2, 3), 1), {3}, (), 2, partition((1, 2), 1), (5, 9)),
        (partition((1, 2), 1), {1}, (), 2, partition((2,), 2, (1,)), (6, 9)),
        (partition((1,), 1, (2, 3)), {1}, {2}, 2, partition((3,), 3, (1, 2)), (6, 9)),
        (partition((1,), 1), {1}, (), 1, partition((1,), 1), (5, 8)),
        (partition((1, 2), 1), {1, 2}, (), 1, partition((1, 2), 1), (5, 8)),
        (partition((1,), 1, (2,)), {1}, {2}, 2, partition((1,), 1, (2,)), (5, 8)),
        (partition((2,), 2), {1}, (), 1, partition((2,), 2), (5, 8)),
    ],
    ids=[
        "leader", "follower", "short", "an eligible replica leads", "alone", "all",
        "the eligible replica is fenced", "not in sync",
    ],
)  # fmt: skip
def test_a_read_only_replica_leads_only_without_another(
    before: PartitionImage,
    read_only: set[int],
    fenced: Iterable[int],
    min_isr: int,
    after: PartitionImage,
    epochs: tuple[int, int],
) -> None:
    wanted = after._replace(leader_epoch=epochs[0], partition_epoch=epochs[1])
    found = without_read_only(before, frozenset(read_only), frozenset(fenced), min_isr)
    assert found == wanted


@pytest.mark.parametrize(
    ("before", "failed_in", "after", "epochs"),
    [
        (partition((1, 2, 3), 1), 5, partition((2, 3), 2), (6, 9)),
        (partition((1, 2), 1), 5, partition((2,), 2), (6, 9)),
        (partition((1,), 1, (2,)), 5, partition((2,), 2), (6, 9)),
        (partition((1,), 1), 5, partition((1,), 1), (5, 8)),
        (partition((1, 2, 3), 2), 5, partition((2, 3), 2), (6, 10)),
        (partition((2,), 2, (1,)), 5, partition((2,), 2), (6, 10)),
        (partition((2, 3), 2), 5, partition((2, 3), 2), (6, 9)),
        (partition((2, 3), 2), 4, partition((2, 3), 2), (5, 8)),
        (partition((2,), 2, (1,)), -1, partition((2,), 2, (), (1,)), (5, 9)),
        (partition((), -1, (1, 3)), -1, partition((), -1, (3,), (1,)), (5, 9)),
    ],
    ids=[
        "leader", "leader of two", "an eligible replica leads", "leader without a successor",
        "follower", "eligible", "its position is known", "settled", "at a start",
        "at a start, without a leader",
    ],
)  # fmt: skip
def test_a_failed_replica_is_not_counted_any_more(
    before: PartitionImage, failed_in: int, after: PartitionImage, epochs: tuple[int, int]
) -> None:
    wanted = after._replace(leader_epoch=epochs[0], partition_epoch=epochs[1])
    assert after_failure(before, 1, Failure(failed_in), NOBODY, 2) == wanted


@pytest.mark.parametrize(
    ("before", "after", "epochs"),
    [
        (partition((1, 2, 3), 1), partition((2, 3), 2), (6, 9)),
        (partition((1,), 1), partition((), NO_LEADER, (1,)), (6, 9)),
        (partition((1, 2), 1), partition((2,), NO_LEADER, (1,)), (6, 9)),
        (partition((), NO_LEADER, (1,)), partition((), NO_LEADER, (1,)), (5, 8)),
        (partition((), NO_LEADER, (), (1,)), partition((), NO_LEADER, (), (1,)), (5, 8)),
        (partition((1, 2), 2), partition((2,), 2), (6, 10)),
    ],
    ids=["leader", "alone", "alone for now", "settled", "settled at a start", "follower"],
)
def test_no_replica_leads_while_the_only_log_is_offline(
    before: PartitionImage, after: PartitionImage, epochs: tuple[int, int]
) -> None:
    wanted = after._replace(leader_epoch=epochs[0], partition_epoch=epochs[1])
    unable = frozenset({2}) if before.isr == (1, 2) and before.leader == 1 else NOBODY
    assert after_failure(before, 1, Failure(5, is_offline=True), unable, 2) == wanted


def test_the_only_replica_leads_again_after_a_start() -> None:
    offline = after_failure(partition((1,), 1), 1, Failure(5, is_offline=True), NOBODY, 2)
    assert elected(offline, NOBODY, 2) == offline.with_isr((1,), 2).led_by(1, (1,))


def test_no_election_chooses_a_replica_whose_log_is_offline() -> None:
    waiting = with_offline(partition((), NO_LEADER, (1,), (2,)), 1, 2)
    assert (waiting.offline, waiting.elr, waiting.partition_epoch) == ((1,), (1,), 9)
    assert with_offline(waiting, 1, 2) is waiting
    assert elected(waiting, NOBODY, 2) is waiting
    both = with_offline(waiting, 2, 2)
    assert (both.offline, elected_uncleanly(both, NOBODY).leader) == ((1, 2), 3)
    assert elected_uncleanly(both, {3}) is both
    started = without_offline(both, 1)
    assert (started.offline, started.partition_epoch) == ((2,), 11)
    assert without_offline(started, 1) is started
    assert elected(started, NOBODY, 2).leader == 1


def test_the_last_replica_of_an_old_log_leaves_the_isr_with_its_log() -> None:
    offline = with_offline(partition((1,), NO_LEADER), 1, 1)
    assert (offline.isr, offline.elr, offline.offline) == ((), (1,), (1,))


def test_a_successor_from_the_elr_is_not_one_whose_log_is_offline() -> None:
    short = with_offline(partition((1,), 1, (2, 3)), 2, 2)
    found = after_fencing(short, 1, {1}, 2)
    assert (found.leader, found.isr, found.elr, found.offline) == (3, (3,), (1, 2), (2,))
    assert without_read_only(with_offline(short, 3, 2), frozenset({1}), NOBODY, 2).leader == 1


def test_the_start_of_an_offline_replica_may_give_the_partition_a_leader() -> None:
    assert has_eligible(with_offline(partition((), NO_LEADER, (1,)), 1, 2))
    assert not has_eligible(with_offline(partition((), NO_LEADER), 1, 2))


def test_an_unclean_election_does_not_prefer_a_replica_that_copies_its_log_again() -> None:
    copying = after_failure(partition((2, 3), 3), 3, Failure(5), NOBODY, 2)
    assert copying.leader == 2
    assert elected_uncleanly(after_fencing(copying, 2, {2}, 2), {2}).leader == 1
    started = after_failure(partition((), NO_LEADER, (3,)), 3, Failure(AT_START), NOBODY, 2)
    assert elected_uncleanly(started, {2}).leader == 3, "its log is kept"


def test_only_an_eligible_replica_leads_again() -> None:
    waiting = partition((), NO_LEADER, (1, 3), (2,))
    assert elected(waiting, {1, 3}, 2) is waiting, "broker 2 may lack committed records"
    assert elected(waiting, {1}, 2) == waiting.with_isr((3,), 2).led_by(3, (3,))
    found = elected(waiting, {3}, 2)
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (1, (1,), (3,), (2,))
    assert elected(waiting, {3}, 1).elr == (), "broker 1 commits alone"
    old = partition((1,), NO_LEADER)
    assert elected(old, {2, 3}, 1) == old.led_by(1, (1,))


def test_the_only_replica_leads_again_with_the_folder_that_it_kept() -> None:
    alone = partition((), NO_LEADER, (), (1,), (1,))
    assert elected(alone, {1}, 1) is alone
    assert elected(alone, NOBODY, 1) == partition((1,), 1, (), (), (1,))._replace(
        leader_epoch=6, partition_epoch=9
    )
    empty = partition((), NO_LEADER, (), (), (1,))
    assert elected(empty, NOBODY, 1) is empty
    others = partition((), NO_LEADER, (), (1,))
    assert elected(others, NOBODY, 1) is others, "another replica may have more of the records"
    for both in ((1, 2), (2, 1)):
        pair = partition((), NO_LEADER, (), both, (1, 2))
        assert elected(pair, NOBODY, 2) is pair, "the order of their returns shows nothing"


def test_an_unclean_leader_is_the_last_known_one_or_the_first_that_lives() -> None:
    waiting = partition((), NO_LEADER, (1,))
    assert elected_uncleanly(waiting, {1}).leader == 2
    assert elected_uncleanly(waiting, {1, 2, 3}) is waiting
    found = elected_uncleanly(partition((), NO_LEADER, (1,), (2, 3)), {1})
    assert (found.leader, found.isr, found.elr, found.last_known_elr) == (3, (3,), (), ())
    assert (found.leader_epoch, found.partition_epoch) == (6, 9)


def test_the_elr_ends_when_enough_replicas_are_in_sync_under_new_settings() -> None:
    short = partition((1,), 1, (2,), (3,))
    assert under_settings(short, 2) is short
    assert under_settings(short, 1) == partition((1,), 1)._replace(partition_epoch=9)
    leaderless = partition((), NO_LEADER, (2,))
    assert under_settings(leaderless, 1) is leaderless
    full = partition((1, 2), 1)
    assert under_settings(full, 3) is full


@pytest.mark.parametrize(
    ("isr", "leader", "fenced", "new_isr", "new_leader", "epochs"),
    [
        ((1, 2, 3), 1, {1}, (2, 3), 2, (6, 9)),
        ((1, 3), 1, {1}, (3,), 3, (6, 9)),
        ((1, 2, 3), 2, {1}, (2, 3), 2, (5, 9)),
        ((2, 3), 2, {1}, (2, 3), 2, (5, 8)),
        ((1,), 1, {1}, (1,), NO_LEADER, (6, 9)),
        ((1,), NO_LEADER, {1}, (1,), NO_LEADER, (5, 8)),
    ],
    ids=["leader", "follower-of-two", "follower", "not-in-sync", "last", "last-again"],
)
def test_before_there_was_an_elr_the_last_replica_stayed(
    isr: tuple[int, ...],
    leader: int,
    fenced: set[int],
    new_isr: tuple[int, ...],
    new_leader: int,
    epochs: tuple[int, int],
) -> None:
    found = without_broker(partition(isr, leader), 1, fenced)
    assert (found.isr, found.leader, found.elr) == (new_isr, new_leader, ())
    assert (found.leader_epoch, found.partition_epoch) == epochs


_STEPS = (
    "append", "append", "fetch", "fetch", "fetch", "commit", "commit", "follow", "follow", "flush",
    "fence", "unfence", "start", "kill", "lose_power", "wipe", "propose", "set_min_isr", "prefer",
    "fill", "free", "fail", "fail", "elect",
)  # fmt: skip


@st.composite
def _histories(draw: st.DrawFn) -> tuple[ClusterModel, list[tuple[str, tuple[object, ...]]]]:
    factor = draw(st.integers(2, 4))  # the only replica leads in spite of a loss
    nodes = st.integers(1, factor)
    steps: list[tuple[str, tuple[object, ...]]] = []
    for name in draw(st.lists(st.sampled_from(_STEPS), min_size=20, max_size=80)):
        arguments: tuple[object, ...] = (draw(nodes),)
        if name == "propose":
            arguments = (*arguments, draw(st.frozensets(nodes)))
        elif name == "prefer":
            arguments = ()
        steps.append((name, arguments))
    unclean = draw(st.sampled_from((False, False, True)))
    level = draw(st.sampled_from((OFFLINE_SINCE, OFFLINE_SINCE, OFFLINE_SINCE - 1)))
    model = ClusterModel(
        factor, draw(st.integers(1, 3)), durable=draw(st.booleans()), unclean=unclean, level=level
    )
    return model, steps


def test_after_a_power_failure_of_all_a_durable_partition_has_a_leader() -> None:
    model = ClusterModel(3, 2, durable=True)
    for name in ("append", "flush"):
        getattr(model, name)(1)
    for node_id in (2, 3):
        for name in ("fetch", "flush", "fetch"):
            getattr(model, name)(node_id)
    model.commit(1)
    assert len(model.committed) == 1
    for node_id in (2, 1, 3):
        model.lose_power(node_id)
        model.fence(node_id)
    for node_id in (2, 1, 3):
        model.start(node_id)
        model.unfence(node_id)
        model.check()
    assert model.state.leader in (1, 3), "one of the last two in sync"


def _play(history: tuple[ClusterModel, list[tuple[str, tuple[object, ...]]]]) -> None:
    model, steps = history
    for name, arguments in steps:
        getattr(model, name)(*arguments)
        model.check()


def test_a_replica_with_room_again_leads_instead_of_a_leader_that_cannot_write() -> None:
    model = ClusterModel(2, 2)
    _play((model, [("append", (1,)), ("fill", (1,)), ("fill", (2,)), ("free", (1,))]))
    assert model.state.leader == 1


@pytest.mark.parametrize("count", [80, pytest.param(2000, marks=pytest.mark.long)])
def test_no_history_lets_a_replica_without_a_committed_record_lead(count: int) -> None:
    search = settings(max_examples=count, suppress_health_check=list(HealthCheck), deadline=None)
    search(given(_histories())(_play))()
