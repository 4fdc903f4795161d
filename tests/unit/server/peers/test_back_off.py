from __future__ import annotations

from doubles.randomness import SeededRandom
from lakelog.server.peers.back_off import FIRST_S, JITTER, LONGEST_S, BackOff


def test_pauses_double_up_to_a_limit_and_begin_again_after_a_success() -> None:
    back_off = BackOff(SeededRandom(7))
    for _ in range(2):
        wanted = FIRST_S
        for _ in range(100):
            pause_s = back_off.next_s()
            assert wanted * (1 - JITTER) <= pause_s <= wanted * (1 + JITTER)
            wanted = min(2 * wanted, LONGEST_S)
        back_off.reset()


def test_brokers_that_failed_together_do_not_call_in_step() -> None:
    firsts = {BackOff(SeededRandom(seed)).next_s() for seed in range(20)}
    assert len(firsts) == 20
    assert max(firsts) - min(firsts) > FIRST_S * JITTER
