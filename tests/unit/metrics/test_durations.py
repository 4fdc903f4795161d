from __future__ import annotations

import threading

from lakelog.metrics.durations import Durations


def test_each_duration_is_in_the_first_bucket_that_holds_it() -> None:
    durations = Durations((0.001, 0.01, 1.0))
    for seconds in (0.02, 0.001, 0.0005, 5.0, 1.0):
        durations.note(seconds)
    assert durations.fold() == 5.0
    assert durations.cumulative() == [2, 2, 4, 5]
    assert durations.count == 5
    assert durations.sum_s == 0.02 + 0.001 + 0.0005 + 5.0 + 1.0


def test_nothing_new_is_a_longest_of_zero_and_changes_nothing() -> None:
    durations = Durations((1.0,))
    durations.note(0.5)
    durations.fold()
    assert durations.fold() == 0.0
    assert durations.cumulative() == [1, 1]


def test_what_threads_note_while_it_is_folded_is_not_lost() -> None:
    durations, each = Durations(), 5000

    def work() -> None:
        for _ in range(each):
            durations.note(0.01)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        durations.fold()
    durations.fold()
    assert durations.count == durations.cumulative()[-1] == 4 * each
