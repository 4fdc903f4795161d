from __future__ import annotations

from dataclasses import replace

import transaction_setup
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.errors import ErrorCode
from lakelog.base.memory_budget import Share
from lakelog.coordinator.shard import Now, SharedCount
from lakelog.coordinator.transaction.ids import (
    Decision,
    Fence,
    Fences,
    TransactionalIds,
    TransactionConfig,
)
from lakelog.coordinator.transaction.records import TransactionRecord
from lakelog.coordinator.transaction.state import OpenTransaction, Transaction, TransactionState

AGAINST_POLICY = ErrorCode.POLICY_VIOLATION


@transaction_setup.in_virtual_time()
async def test_a_transaction_takes_no_more_than_its_share(
    setup: transaction_setup.Setup,
) -> None:
    setup.memory = Share(1 << 20)
    await setup.restart()
    producer = await setup.ready("t")
    many = [("orders", index) for index in range(1000)]
    assert await setup.add(producer, *many) == AGAINST_POLICY
    assert await setup.add(producer, *many[:500]) == 0
    assert await setup.add(producer, *many[500:900]) == AGAINST_POLICY
    assert (await setup.end(producer, commit=True)).code == 0
    await setup.settled()
    assert await setup.add(producer, *many[:500]) == 0

    setup.memory.used += 1 << 20
    assert (await setup.init("another")).code == AGAINST_POLICY
    setup.memory.used -= 1 << 20
    assert (await setup.init("another")).code == 0


class Ids:
    """The transactional ids of one shard, of which one has an ongoing transaction."""

    def __init__(self, *, forgotten_epochs_end: int = 0) -> None:
        self.fences: Fences = {}
        self.ids = TransactionalIds(
            TransactionConfig(),
            SharedCount(),
            self.fences,
            Share(),
            forgotten_epochs_end=forgotten_epochs_end,
        )
        self.ongoing = Transaction(
            producer_id=7,
            producer_epoch=3,
            timeout_ms=1000,
            state=TransactionState.ONGOING,
            start_ms=500,
            last_update_ms=500,
        )
        self.ids.replay(TransactionRecord("t", self.ongoing))

    def step(self, step: Transaction) -> Decision:
        return self.ids.step(Now(0, 0), "t", step)


def test_an_id_is_settled_between_two_steps() -> None:
    setup = Ids()
    assert setup.ids.find("t") == (setup.ongoing, True, False)
    prepared = replace(setup.ongoing, state=TransactionState.PREPARE_COMMIT)
    decision = setup.step(prepared)
    assert not setup.ids.find("t").is_complete
    setup.ids.forget(Now(0, 0), decision.records[0])
    assert setup.ids.find("t") == (setup.ongoing, True, False)
    decision = setup.step(prepared)
    setup.ids.replay(decision.records[0])
    assert setup.ids.find("t") == (prepared, True, False)


def test_additions_of_partitions_build_on_each_other() -> None:
    setup = Ids()
    grown = replace(setup.ongoing, partitions=frozenset([("orders", 0)]))
    setup.step(grown)
    assert setup.ids.find_adding("t").current is grown
    assert setup.ids.find_adding("t").is_complete
    assert setup.ids.find("t").current is setup.ongoing


def test_no_partition_is_added_behind_the_end_of_the_transaction() -> None:
    setup = Ids()
    setup.step(replace(setup.ongoing, state=TransactionState.PREPARE_ABORT))
    assert not setup.ids.find_adding("t").is_complete


def test_a_pending_fence_comes_before_any_other_step() -> None:
    setup = Ids()
    setup.fences["t"] = Fence([OpenTransaction("orders", 0, 7, 3, -1, 0)])
    assert not setup.ids.find("t").is_complete


def test_epochs_below_the_end_of_forgotten_ones_may_be_old() -> None:
    assert Ids(forgotten_epochs_end=8).ids.find("t").may_be_old
    assert not Ids(forgotten_epochs_end=7).ids.find("t").may_be_old


def test_a_clock_set_back_extends_no_timeout_and_a_renewal_moves_none() -> None:
    setup = Ids()
    setup.ids.arm(Now(wall_ms=100, tick_ms=5000), "t")
    setup.ids.arm(Now(wall_ms=600, tick_ms=5900), "t")
    assert setup.ids.deadlines.earliest == 6000


def _fence() -> Fence:
    open_ones = [OpenTransaction("orders", index, 7, 3 + index, -1, 0) for index in range(2)]
    return Fence(open_ones)


def test_a_fence_is_pending_until_the_epoch_has_passed_all_hanging_transactions() -> None:
    current = Transaction(producer_id=7, producer_epoch=4, timeout_ms=1, last_update_ms=0)
    assert _fence().is_pending(current)
    assert not _fence().is_pending(replace(current, producer_epoch=5))


def test_no_fence_is_pending_for_another_producer_or_an_expired_id() -> None:
    other = Transaction(producer_id=8, producer_epoch=0, timeout_ms=1, last_update_ms=0)
    assert not _fence().is_pending(other)
    assert not _fence().is_pending(None)


def test_pauses_double_up_to_ten_seconds() -> None:
    fence = _fence()
    pauses = [fence.next_pause_ms() for _ in range(9)]
    assert pauses == [100, 200, 400, 800, 1600, 3200, 6400, 10_000, 10_000]


def test_both_have_the_same_defaults() -> None:
    """Tests and tools without a broker's configuration decide as a broker does."""
    assert TransactionConfig.from_broker(BrokerConfig({})) == TransactionConfig()


def test_each_key_sets_its_own_field() -> None:
    values = {
        "transaction.max.timeout.ms": "1000",
        "transactional.id.expiration.ms": "2000",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "3000",
        "lakelog.transactional.ids.max": "4",
        "transaction.state.log.num.partitions": "5",
        "message.max.bytes": "6000",
    }
    assert TransactionConfig.from_broker(BrokerConfig(values)) == TransactionConfig(
        timeout_max_ms=1000,
        id_expiration_ms=2000,
        id_expiration_check_ms=3000,
        ids_max=4,
        partitions=5,
        batch_bytes_max=6000,
    )
