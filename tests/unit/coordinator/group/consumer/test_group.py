from __future__ import annotations

from consumer_members import GROUP, Consumer, settle, snapshot
from group_setup import Setup, in_virtual_time
from lakelog.coordinator.group.config import ConsumerConfig

AT_ONCE = ConsumerConfig(assignment_interval_ms=0)


@in_virtual_time(consumer=AT_ONCE)
async def test_state_survives_a_restart_exactly(setup: Setup) -> None:
    one = Consumer(setup, "one", topics=["orders"], instance_id="a")
    two = Consumer(setup, "two", topics=None, regex="cl.*", assignor="range")
    three = Consumer(setup, "three")
    await settle(one, two)
    await three.beat()
    await one.ask()
    before = snapshot(setup)
    assert before[GROUP]["regexes"]
    await setup.restart()
    assert snapshot(setup) == before
    await settle(one, two, three)
    assert one.of() | three.of() == set(range(8))
