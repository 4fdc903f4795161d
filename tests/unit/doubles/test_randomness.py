from __future__ import annotations

from doubles.randomness import SeededRandom


def _drawn(seed: int) -> tuple[bytes, list[int]]:
    random = SeededRandom(seed)
    return random.bytes(16), [random.below(1000) for _ in range(20)]


def test_a_seed_reproduces_a_test() -> None:
    assert _drawn(7) == _drawn(7)
    assert _drawn(7) != _drawn(8)


def test_numbers_are_below_their_end() -> None:
    random = SeededRandom(1)
    assert {random.below(3) for _ in range(100)} == {0, 1, 2}
    assert random.below(1) == 0
