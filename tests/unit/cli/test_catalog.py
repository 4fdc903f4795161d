from __future__ import annotations

import re

from lakelog.base.errors import ErrorCode
from lakelog.cli.catalog import BY_KAFKA, CATALOG, ExitCode


def test_codes_are_well_formed_and_keyed_by_themselves() -> None:
    for code, entry in CATALOG.items():
        assert re.fullmatch(r"LL\d{4}", code)
        assert entry.code == code
        assert entry.text.endswith(".")
        assert not entry.title.endswith(".")


def test_a_kafka_code_belongs_to_one_entry() -> None:
    claimed = [code for entry in CATALOG.values() for code in entry.kafka]
    assert len(claimed) == len(set(claimed)) == len(BY_KAFKA)


def test_codes_that_are_written_down_keep_their_meaning() -> None:
    assert BY_KAFKA[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION].code == "LL0102"
    assert CATALOG["LL0102"].exit is ExitCode.NOT_FOUND
    assert CATALOG["LL0101"].exit is ExitCode.CONFLICT
    assert CATALOG["LL0301"].exit is ExitCode.UNREACHABLE
    assert CATALOG["LL0401"].exit is ExitCode.DENIED
    assert CATALOG["LL0604"].exit is ExitCode.PARTIAL
    assert CATALOG["LL0902"].exit is ExitCode.USAGE


def test_each_explanation_adds_a_remedy_to_the_title() -> None:
    """An explanation that only says the title again sends the reader away."""
    for entry in CATALOG.values():
        words = set(re.findall(r"[a-z]+", entry.text.lower()))
        added = words - set(re.findall(r"[a-z]+", entry.title.lower()))
        assert len(added) >= 10, f"{entry.code}: {entry.text}"
        assert re.search("`|--debug", entry.text), f"{entry.code} names no command or option"
