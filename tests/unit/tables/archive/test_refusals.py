from __future__ import annotations

import pytest

from lakelog.tables.archive import refusals as module
from lakelog.tables.archive.refusals import (
    OnBadRecord,
    Refusals,
    RefusedCount,
    RefusedRecord,
    Span,
    stop,
)
from lakelog.tables.topic.errors import BadRecordError, OptionError


def refused(
    offset: int, last: int, *, partition: int = 0, is_damaged: bool = False
) -> RefusedRecord:
    return RefusedRecord("t", partition, offset, last, "it is bad", b"raw", is_damaged)


def test_a_stop_names_the_record_and_the_ways_to_go_on() -> None:
    with pytest.raises(BadRecordError, match=r"^t-0@7: it is bad\. .*--null-timestamps.*dead-lett"):
        stop(refused(7, 7))
    with pytest.raises(BadRecordError, match=r"^t-0@7: it is bad\. Set the topic's key table\.err"):
        stop(refused(7, 9, is_damaged=True))


def test_an_unknown_name_is_an_error_that_names_the_others() -> None:
    assert OnBadRecord.named("dead-letter") is OnBadRecord.DEAD_LETTER
    with pytest.raises(OptionError, match="'ignore': expected one of stop, dead-letter, skip"):
        OnBadRecord.named("ignore")


def test_refused_offsets_are_counted_and_the_first_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "NAMED_MAX", 2)
    found = Refusals()
    for each in (refused(1, 1), refused(2, 4), refused(9, 9, partition=1), refused(11, 11)):
        found.add(each, OnBadRecord.DEAD_LETTER)
    found.add(refused(12, 12), OnBadRecord.SKIP)
    assert found.counts == {0: RefusedCount(5, 1), 1: RefusedCount(1, 0)}
    assert found.named == [Span(0, 1, 5), Span(1, 9, 10)]
