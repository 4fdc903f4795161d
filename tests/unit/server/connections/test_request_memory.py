from __future__ import annotations

from lakelog.server.connections.request_memory import RequestMemory


def never() -> None:
    raise AssertionError("nothing has been given back")


def test_without_a_limit_everything_is_granted() -> None:
    memory = RequestMemory(0)
    assert memory.take("a", 1 << 40, never)
    assert not memory.is_short


def test_one_owner_overdraws_and_the_others_wait_until_it_gives_back() -> None:
    memory, asked = RequestMemory(100), []
    assert memory.take("a", 90, never)
    assert memory.take("b", 90, never), "b overdraws"
    assert not memory.take("c", 1, lambda: asked.append("c"))
    assert memory.take("b", 10, never), "the owner that has overdrawn may go further"
    assert memory.waiting["c"].size == 1
    memory.give("b", 100)
    assert (asked, memory.waiting, memory.is_short) == (["c"], {}, False)
    assert memory.take("c", 1, never)


def test_an_owner_that_leaves_waits_no_longer() -> None:
    memory = RequestMemory(10)
    memory.take("a", 20, never)
    assert not memory.take("b", 1, never)
    memory.leave("b")
    memory.give("a", 20)
    assert (memory.used, memory.is_short) == (0, False)


def test_optional_memory_leaves_half_of_the_budget_to_others() -> None:
    memory = RequestMemory(100)
    assert memory.try_take(50)
    assert not memory.try_take(1)


def test_memory_that_exists_anyway_is_counted_while_it_does() -> None:
    memory = RequestMemory(10)
    with memory.holding(1000):
        assert memory.used == 1000
    assert memory.used == 0
