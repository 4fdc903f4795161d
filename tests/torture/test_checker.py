"""The checker finds each anomaly in a history that has it, and none in a correct one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from torture.anomalies import Kind
from torture.checker import check
from torture.history import History, parse

DEADLINE_S = 10.0
SECOND = 1_000_000_000


class Written:
    """A history in the making; each line is one second after the one before."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._seconds = count(1)
        self._numbers = count(1)

    def line(self, process: str, **keys: Any) -> None:
        at = next(self._seconds) * SECOND
        self.lines.append(json.dumps({"at": at, "process": process, **keys}))

    def invoke(self, process: str, f: str, **keys: Any) -> int:
        number = next(self._numbers)
        self.line(process, op=number, f=f, type="invoke", **keys)
        return number

    def end(self, process: str, number: int, outcome: str, **keys: Any) -> None:
        self.line(process, op=number, type=outcome, **keys)

    def send(self, value: str, offset: int | None = None, outcome: str = "ok") -> None:
        """Send a value to partition 0 of topic `n`, by the producer before its slash."""
        process = value.partition("/")[0]
        number = self.invoke(process, "send", records=[["n-0", value]])
        self.end(process, number, outcome, offsets=[offset])

    def transaction(
        self,
        records: dict[str, str],
        outcome: str = "ok",
        offsets: tuple[int | None, ...] = (),
        **keys: Any,
    ) -> None:
        """Send values by partition and call commit, or abort for the outcome `fail`."""
        number = self.invoke("t.0", "txn", records=list(records.items()), **keys)
        if outcome != "fail":
            self.end("t.0", number, "ending")
        self.end("t.0", number, outcome, offsets=list(offsets))

    def read(
        self,
        reader: str,
        *records: tuple[str, int, str],
        isolation: str = "read_committed",
        start: int = 0,
        group: str | None = None,
    ) -> None:
        starts = {partition: start for partition, _, _ in records}
        keys = {"reader": reader, "group": group, "isolation": isolation, "positions": starts}
        self.line(reader, f="assign", type="ok", **keys)
        self.line(reader, f="poll", type="ok", reader=reader, records=records)

    def commit(self, process: str, end: int, outcome: str = "ok") -> None:
        number = self.invoke(process, "commit", group="g", commits={"n-0": end})
        self.end(process, number, outcome)

    def committed(self, end: int) -> None:
        number = self.invoke("asks", "committed", group="g")
        self.end("asks", number, "ok", commits={"n-0": end})

    def complete(self) -> History:
        self.line("nemesis", f="complete", type="ok")
        return self.history()

    def history(self) -> History:
        return parse(self.lines)


@pytest.fixture
def written() -> Written:
    return Written()


def kinds(history: History) -> set[Kind]:
    return {anomaly.kind for anomaly in check(history, DEADLINE_S)}


def at(offset: int, value: str, partition: str = "n-0") -> tuple[str, int, str]:
    return partition, offset, value


def test_a_correct_history_has_no_anomaly(written: Written) -> None:
    written.send("p/1", 0)
    written.send("p/2", 1)
    written.transaction({"o-0": "t/1", "o-1": "t/2"}, "ok", (0, 0))
    written.transaction({"o-0": "t/3", "o-1": "t/4"}, "fail", (2, None))
    written.read("r1", at(0, "p/1"), at(1, "p/2"), group="g")
    written.commit("r1", 1)
    written.commit("r1", 2)
    written.committed(2)
    written.read("w", at(0, "p/1"), at(1, "p/2"), at(0, "t/1", "o-0"), at(0, "t/2", "o-1"))
    written.read(
        "dirty",
        *(at(0, "p/1"), at(1, "p/2"), at(0, "t/1", "o-0"), at(0, "t/2", "o-1")),
        at(2, "t/3", "o-0"),
        isolation="read_uncommitted",
    )
    assert check(written.complete(), DEADLINE_S) == []


@pytest.mark.parametrize("is_there", [True, False])
@pytest.mark.parametrize("is_over", [True, False])
def test_an_unknown_outcome_may_be_either(written: Written, is_there: bool, is_over: bool) -> None:
    written.send("p/1", 0)
    number = written.invoke("p", "send", records=[["n-0", "p/2"]])
    if is_over:
        written.end("p", number, "info")
    written.send("p/3", 2 if is_there else 1)
    records = [at(0, "p/1"), at(1, "p/2"), at(2, "p/3")]
    written.read("r1", *(records if is_there else (at(0, "p/1"), at(1, "p/3"))))
    assert check(written.complete(), DEADLINE_S) == []


@pytest.mark.parametrize("is_there", [True, False])
def test_an_unknown_transaction_may_be_either(written: Written, is_there: bool) -> None:
    written.transaction({"o-0": "t/1", "o-1": "t/2"}, "info", (0, 0))
    written.transaction({"o-0": "t/3", "o-1": "t/4"}, "ok", (2, 2))
    first = (at(0, "t/1", "o-0"), at(0, "t/2", "o-1")) if is_there else ()
    written.read("r1", *sorted([*first, at(2, "t/3", "o-0"), at(2, "t/4", "o-1")]))
    assert check(written.complete(), DEADLINE_S) == []


def test_a_lost_write_before_a_received_record(written: Written) -> None:
    written.send("p/1", 0)
    written.send("p/2", 1)
    written.read("r1", at(1, "p/2"))
    assert kinds(written.complete()) == {Kind.LOST}


def test_a_lost_write_at_the_end(written: Written) -> None:
    written.send("p/1", 0)
    written.send("p/2", 1)
    written.read("r1", at(0, "p/1"))
    assert kinds(written.history()) == set()
    assert kinds(written.complete()) == {Kind.LOST}


def test_a_received_record_that_later_readers_do_not_receive_is_lost(written: Written) -> None:
    written.send("p/1", 0)
    written.send("p/2", None, "info")
    written.send("p/3", 2)
    written.read("dirty", at(0, "p/1"), at(1, "p/2"), isolation="read_uncommitted")
    written.read("again", at(0, "p/1"), at(2, "p/3"), isolation="read_uncommitted")
    written.read("r1", at(0, "p/1"), at(2, "p/3"))
    assert Kind.SKIPPED in kinds(written.complete())


def test_a_lost_record_of_a_committed_transaction(written: Written) -> None:
    written.transaction({"o-0": "t/1"}, "ok", (0,))
    written.transaction({"o-0": "t/2"}, "ok", (2,))
    written.read("r1", at(2, "t/2", "o-0"))
    assert kinds(written.complete()) == {Kind.LOST}


def test_a_record_that_one_reader_skips(written: Written) -> None:
    written.send("p/1", 0)
    written.send("p/2", 1)
    written.send("p/3", 2)
    written.read("r1", at(0, "p/1"), at(1, "p/2"), at(2, "p/3"))
    written.read("r2", at(0, "p/1"), at(2, "p/3"))
    written.read("r3", at(2, "p/3"), start=2)
    (anomaly,) = check(written.complete(), DEADLINE_S)
    assert str(anomaly) == "skipped read: r2 did not receive n-0:1"


def test_a_duplicate(written: Written) -> None:
    written.send("p/1", 0)
    written.read("r1", at(0, "p/1"), at(1, "p/1"))
    assert kinds(written.complete()) == {Kind.DUPLICATE}


def test_a_duplicate_of_an_unknown_write(written: Written) -> None:
    written.send("p/1", None, "info")
    written.read("r1", at(0, "p/1"), at(1, "p/1"))
    assert kinds(written.complete()) == {Kind.DUPLICATE}


def test_two_records_at_one_offset(written: Written) -> None:
    written.send("p/1", 0)
    written.send("q/1", None, "info")
    written.read("r1", at(0, "q/1"))
    assert Kind.INCONSISTENT in kinds(written.complete())


def test_a_phantom(written: Written) -> None:
    written.read("r1", at(0, "p/1"))
    assert kinds(written.complete()) == {Kind.PHANTOM}


def test_a_record_in_another_partition(written: Written) -> None:
    written.send("p/1", None, "info")
    written.read("r1", at(0, "p/1", "n-1"))
    assert kinds(written.complete()) == {Kind.PHANTOM}


def test_records_in_another_order(written: Written) -> None:
    written.send("p/1", None, "info")
    written.send("p/2", None, "info")
    written.send("p/3", None, "info")
    written.read("r1", at(0, "p/2"), at(1, "p/1"), at(2, "p/3"))
    assert kinds(written.complete()) == {Kind.REORDERED}


def test_records_of_one_transaction_in_another_order(written: Written) -> None:
    number = written.invoke("t.0", "txn", records=[["o-0", "t/1"], ["o-0", "t/2"]])
    written.end("t.0", number, "ending")
    written.end("t.0", number, "ok", offsets=[1, 0])
    written.read("r1", at(0, "t/2", "o-0"), at(1, "t/1", "o-0"))
    assert kinds(written.complete()) == {Kind.REORDERED}


def test_a_reader_that_goes_back(written: Written) -> None:
    written.send("p/1", 0)
    written.send("p/2", 1)
    written.read("r1", at(0, "p/1"), at(1, "p/2"), at(1, "p/2"))
    assert kinds(written.complete()) == {Kind.BACKWARDS}


def test_a_record_below_the_start_of_its_reader(written: Written) -> None:
    written.send("p/1", 0)
    written.read("r1", at(0, "p/1"), start=1)
    assert kinds(written.complete()) == {Kind.BACKWARDS}


@pytest.mark.parametrize("isolation", ["read_committed", "read_uncommitted"])
def test_a_record_of_an_aborted_transaction(written: Written, isolation: str) -> None:
    written.transaction({"o-0": "t/1"}, "fail", (0,))
    written.read("r1", at(0, "t/1", "o-0"), isolation=isolation)
    expected = {Kind.ABORTED} if isolation == "read_committed" else set()
    assert kinds(written.history()) == expected


def test_a_record_of_a_transaction_whose_client_died_before_the_commit(written: Written) -> None:
    written.invoke("t.0", "txn", records=[["o-0", "t/1"]])
    written.read("r1", at(0, "t/1", "o-0"))
    assert kinds(written.complete()) == {Kind.ABORTED}


def test_a_failed_write_that_is_visible(written: Written) -> None:
    written.send("p/1", None, "fail")
    written.read("r1", at(0, "p/1"))
    assert kinds(written.complete()) == {Kind.ABORTED}


def test_a_record_before_the_commit_of_its_transaction(written: Written) -> None:
    number = written.invoke("t.0", "txn", records=[["o-0", "t/1"]])
    written.read("r1", at(0, "t/1", "o-0"))
    written.end("t.0", number, "ending")
    written.end("t.0", number, "ok", offsets=[0])
    assert kinds(written.complete()) == {Kind.EARLY}


@pytest.mark.parametrize("outcome", ["ok", "info"])
def test_a_transaction_of_which_a_part_is_visible(written: Written, outcome: str) -> None:
    written.transaction({"o-0": "t/1", "o-1": "t/2"}, outcome, (0, None))
    written.read("r1", at(0, "t/1", "o-0"))
    assert kinds(written.complete()) == {Kind.TORN}


def test_a_commit_below_an_earlier_one(written: Written) -> None:
    written.commit("r.0", 5)
    written.commit("r.1", 3)
    assert kinds(written.complete()) == {Kind.REGRESSION}


def test_a_committed_offset_below_an_earlier_one(written: Written) -> None:
    written.commit("r.0", 5)
    written.committed(3)
    assert kinds(written.complete()) == {Kind.REGRESSION}


def test_a_committed_offset_below_that_of_a_transaction(written: Written) -> None:
    keys: dict[str, Any] = {"group": "g", "commits": {"n-0": 5}}
    written.transaction({"o-0": "t/1"}, "ok", (0,), **keys)
    written.committed(3)
    written.read("r1", at(0, "t/1", "o-0"))
    assert kinds(written.complete()) == {Kind.REGRESSION}


def test_unknown_and_concurrent_commits_are_no_regression(written: Written) -> None:
    written.commit("r.0", 5, "info")
    written.commit("r.1", 4, "fail")
    first = written.invoke("r.0", "commit", group="g", commits={"n-0": 3})
    second = written.invoke("r.1", "commit", group="g", commits={"n-0": 2})
    written.end("r.0", first, "ok")
    written.end("r.1", second, "ok")
    assert check(written.complete(), DEADLINE_S) == []


def _processed(written: Written, *outcomes: str, end: int = 1) -> Iterator[str]:
    written.send("p/1", 0)
    written.send("p/2", 1)
    for number, outcome in enumerate(outcomes):
        value, group = f"t/{number}", {"group": "g", "commits": {"n-0": end}}
        written.transaction({"o-0": value}, outcome, (number,), inputs=[["n-0", 0]], **group)
        if outcome == "ok":
            yield value


def test_an_input_that_is_processed_twice(written: Written) -> None:
    values = list(_processed(written, "ok", "ok"))
    outputs = [at(number, value, "o-0") for number, value in enumerate(values)]
    written.read("r1", at(0, "p/1"), at(1, "p/2"), *outputs)
    assert kinds(written.complete()) == {Kind.AGAIN}


def test_an_input_that_is_processed_again_after_an_abort(written: Written) -> None:
    (value,) = _processed(written, "fail", "ok")
    written.read("r1", at(0, "p/1"), at(1, "p/2"), at(1, value, "o-0"))
    assert check(written.complete(), DEADLINE_S) == []


def test_an_input_that_is_not_processed(written: Written) -> None:
    (value,) = _processed(written, "ok", end=2)
    written.read("r1", at(0, "p/1"), at(1, "p/2"), at(0, value, "o-0"))
    assert kinds(written.complete()) == {Kind.MISSING}


def test_a_record_that_a_group_passes_unread(written: Written) -> None:
    written.send("p/1", 0)
    written.send("p/2", 1)
    written.read("r.0", at(0, "p/1"), group="g")
    written.commit("r.0", 2)
    written.read("r1", at(0, "p/1"), at(1, "p/2"))
    assert kinds(written.complete()) == {Kind.MISSING}


def test_an_error_that_must_never_occur(written: Written) -> None:
    written.line("p.0", f="error", type="ok", text="offset out of range")
    (anomaly,) = check(written.complete(), DEADLINE_S)
    assert str(anomaly) == "impossible error: p.0: offset out of range"


def test_a_role_without_success_after_a_healing(written: Written) -> None:
    number = written.invoke("p", "send", records=[["n-0", "p/1"]])
    written.line("nemesis", f="healed", type="ok", roles=["p", "w"])
    written.end("p", number, "ok", offsets=[0])
    written.read("w", at(0, "p/1"))
    (anomaly,) = check(written.complete(), DEADLINE_S)
    assert str(anomaly) == "no progress: p had no success for inf s after healing 1"


def test_a_role_whose_success_is_late(written: Written) -> None:
    written.line("nemesis", f="healed", type="ok", roles=["p"])
    written.send("p/1", 0)
    written.read("w", at(0, "p/1"))
    assert [each.kind for each in check(written.history(), 1.0)] == [Kind.STALLED]
    assert check(written.history(), 2.5) == []


def test_a_line_of_an_unknown_kind_is_rejected(written: Written) -> None:
    written.line("p.0", f="guess", type="ok")
    with pytest.raises(ValueError, match=r"p\.0 wrote 'guess'"):
        written.history()


def begin_pulse(written: Written) -> int:
    return written.invoke("pulse.0", "pulse", records=[["pulses-0", "1"]])


def beat(written: Written, number: int) -> None:
    written.end("pulse.0", number, "ok", offsets=[0])


def silent_for(seconds: int, *, minor: bool) -> Written:
    """Return a history with a fault, and so many lines until the next acknowledgement."""
    written = Written()
    written.line("nemesis", f="fault", type="ok", text="kill broker 1", minor=minor)
    for _ in range(seconds - 2):
        written.line("nemesis", f="healed", type="ok", roles=[])
    beat(written, begin_pulse(written))
    return written


def silence_kinds(written: Written) -> set[Kind]:
    found = check(written.history(), DEADLINE_S, session_s=1.0)
    return {each.kind for each in found} & {Kind.UNAVAILABLE, Kind.HIDDEN}


def test_a_partition_that_is_silent_during_a_fault_of_a_minority_is_found() -> None:
    assert silence_kinds(silent_for(9, minor=True)) == {Kind.UNAVAILABLE}
    assert silence_kinds(silent_for(5, minor=True)) == set()
    assert silence_kinds(silent_for(9, minor=False)) == set()


def test_a_silence_ends_with_the_begin_of_a_fault_of_a_majority() -> None:
    written = Written()
    for minor in (True, False):
        written.line("nemesis", f="fault", type="ok", text="kill brokers", minor=minor)
    for _ in range(8):
        written.line("nemesis", f="healed", type="ok", roles=[])
    beat(written, begin_pulse(written))
    assert silence_kinds(written) == set()


def test_a_pulse_that_began_earlier_does_not_count() -> None:
    written = Written()
    number = begin_pulse(written)
    written.line("nemesis", f="fault", type="ok", text="pause broker 1", minor=True)
    beat(written, number)
    assert silence_kinds(written) == {Kind.UNAVAILABLE}


def test_a_slow_machine_gets_more_time_beside_the_session() -> None:
    written = silent_for(9, minor=True)
    written.lines.append(pace(1.2))
    assert silence_kinds(written) == {Kind.UNAVAILABLE}
    written.lines.append(pace(4.0))
    assert silence_kinds(written) == set()


def pace(factor: float) -> str:
    """Return the line of a measurement while the partition is silent."""
    line = {"at": 4 * SECOND, "process": "pace", "f": "pace", "type": "ok", "factor": factor}
    return json.dumps(line)


def shown_for(times: int, outcome: str = "ok", **fault: bool) -> Written:
    """Return a history with a surface asked so often between two acknowledgements."""
    written = Written()
    beat(written, begin_pulse(written))
    written.line("nemesis", f="fault", type="ok", text="cut", **fault)
    for _ in range(times):
        number = written.invoke("readyz", "shown")
        written.end("readyz", number, outcome)
    written.line("nemesis", f="healed", type="ok", roles=[])
    beat(written, begin_pulse(written))
    return written


def test_a_partition_that_cannot_be_written_while_a_surface_shows_health_is_found() -> None:
    assert silence_kinds(shown_for(5)) == {Kind.HIDDEN}
    assert silence_kinds(shown_for(3)) == set()
    assert silence_kinds(shown_for(5, outcome="fail")) == set()


def test_clients_that_are_cut_off_judge_no_surface() -> None:
    assert silence_kinds(shown_for(5, blind=True)) == set()
