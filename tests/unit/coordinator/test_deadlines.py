from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lakelog.coordinator.deadlines import Deadlines


def _drain(deadlines: Deadlines[str], now_ms: int) -> list[str]:
    due = []
    while (key := deadlines.pop_due(now_ms)) is not None:
        due.append(key)
    return due


def test_due_keys_come_earliest_first_and_once() -> None:
    deadlines: Deadlines[str] = Deadlines()
    for key, at in (("late", 30), ("early", 10), ("middle", 20)):
        deadlines.set(key, at)
    assert deadlines.earliest == 10
    assert _drain(deadlines, 9) == []
    assert _drain(deadlines, 25) == ["early", "middle"]
    assert _drain(deadlines, 25) == []
    assert "late" in deadlines.at


def test_a_deadline_moves_either_way() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.set("a", 50)
    assert _drain(deadlines, 49) == []
    deadlines.set("a", 45)
    assert _drain(deadlines, 46) == ["a"]
    assert _drain(deadlines, 100) == []


def test_a_cancelled_one_is_forgotten_and_can_be_set_again() -> None:
    deadlines: Deadlines[str] = Deadlines()
    deadlines.set("a", 10)
    deadlines.cancel("a")
    assert deadlines.earliest is None
    deadlines.set("a", 20)
    assert _drain(deadlines, 15) == []
    assert _drain(deadlines, 20) == ["a"]


def test_cancelled_ones_take_no_room() -> None:
    deadlines: Deadlines[int] = Deadlines()
    for key in range(100_000):
        deadlines.set(key, 1_000_000 + key)
        deadlines.cancel(key)
    assert not deadlines.at
    assert len(deadlines._heap) < 200


@given(
    st.lists(
        st.tuples(st.sampled_from("abcd"), st.one_of(st.none(), st.integers(0, 60))), max_size=60
    )
)
def test_agrees_with_a_plain_dictionary(steps: list[tuple[str, int | None]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for now, (key, deadline) in enumerate(steps):
        if deadline is None:
            deadlines.cancel(key)
            model.pop(key, None)
        else:
            deadlines.set(key, now + deadline)
            model[key] = now + deadline
        due = {each for each, at in model.items() if at <= now}
        earliest = deadlines.earliest
        assert earliest is None or earliest <= min(model.values(), default=earliest)
        assert set(_drain(deadlines, now)) == due
        for each in due:
            del model[each]
    assert sorted(_drain(deadlines, 1000)) == sorted(model)
