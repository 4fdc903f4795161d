"""The parser of prometheus-client reads the exposition back."""

from __future__ import annotations

import math
import threading

from prometheus_client.parser import text_string_to_metric_families

from lakelog.metrics import Durations, Family, Kind, exposed, exposed_durations


def _parsed(lines: list[str]) -> list[tuple[str, dict[str, str], float]]:
    families = text_string_to_metric_families("\n".join([*lines, ""]))
    return [(s.name, s.labels, s.value) for family in families for s in family.samples]


def test_label_values_of_any_kind_survive() -> None:
    family = Family("x_total", Kind.COUNTER, 'what "it" is\\\nin two lines', ("topic", "op"))
    names = ['a"b', "a\\b", "a\nb", "ä,{}=", ""]
    lines = [*exposed(family, [((name, "produce"), 7) for name in names])]
    assert _parsed(lines) == [("x_total", {"topic": n, "op": "produce"}, 7.0) for n in names]
    (read,) = text_string_to_metric_families("\n".join([*lines, ""]))
    assert (read.type, read.documentation) == ("counter", family.help)


def test_numbers_of_any_size() -> None:
    family = Family("x", Kind.GAUGE, "x")
    for number in (0, 1, -1, 2**62, 0.1, 1e-9, 1e300, math.inf, -math.inf):
        assert _parsed([*exposed(family, [((), number)])]) == [("x", {}, float(number))]


def test_a_family_without_samples_is_still_described() -> None:
    lines = [*exposed(Family("x", Kind.GAUGE, "x", ("topic",)), [])]
    (read,) = text_string_to_metric_families("\n".join([*lines, ""]))
    assert (read.name, read.samples) == ("x", [])


def test_durations_that_are_kept_apart_are_added_up() -> None:
    family = Family("wait_seconds", Kind.HISTOGRAM, "x", ("api",))
    parts = [Durations((0.1, 1.0)), Durations((0.1, 1.0))]
    for part, seconds in ((0, 0.05), (0, 0.5), (1, 0.5), (1, 5.0)):
        parts[part].note(seconds)
        parts[part].fold()
    api = {"api": "Fetch"}
    assert _parsed([*exposed_durations(family, [(("Fetch",), parts)])]) == [
        ("wait_seconds_bucket", api | {"le": "0.1"}, 1.0),
        ("wait_seconds_bucket", api | {"le": "1.0"}, 3.0),
        ("wait_seconds_bucket", api | {"le": "+Inf"}, 4.0),
        ("wait_seconds_sum", api, 6.05),
        ("wait_seconds_count", api, 4.0),
    ]


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
