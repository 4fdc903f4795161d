"""Compares promises to clients with the stored data; each difference is one line of text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping

from endurance.history import History, Stored

COPIES = 3
"""Records of one transaction of the ledger, each in a partition of its own."""


def transformed(record: Stored) -> str:
    """Return the output of the exactly-once transformation for a record."""
    return f"{record.partition}:{record.offset}:{record.value[::-1]}"


def judge_acknowledged(acknowledged: Iterable[Stored], found: list[Stored]) -> list[str]:
    """Check that acknowledged records are at their offsets, and that each value exists once.

    Values are `<producer>/<number>`, and of one producer and partition the numbers rise.
    """
    there = {(record.partition, record.offset): record.value for record in found}
    complaints = [
        f"lost: {record.value} was acknowledged at {record.partition}:{record.offset}, "
        f"where {there.get((record.partition, record.offset))} is"
        for record in acknowledged
        if there.get((record.partition, record.offset)) != record.value
    ]
    counts = Counter(record.value for record in found)
    complaints += [f"twice: {value} is there {n} times" for value, n in counts.items() if n > 1]
    return complaints + _judge_order(found)


def _judge_order(found: Iterable[Stored]) -> list[str]:
    newest: dict[tuple[str, int], int] = {}
    complaints = []
    for record in sorted(found):
        producer, _, number = record.value.rpartition("/")
        key = producer, record.partition
        if int(number) < newest.get(key, -1):
            complaints.append(f"out of order: {record.value} comes after {newest[key]}")
        newest[key] = int(number)
    return complaints


def judge_transactions(outcomes: Mapping[str, str], committed: Iterable[Stored]) -> list[str]:
    """Check that `COPIES` records of each transaction are visible, or none, as acknowledged."""
    counts = Counter(record.value for record in committed)
    complaints = []
    for name, outcome in outcomes.items():
        allowed = {"committed": {COPIES}, "aborted": {0}, "unknown": {0, COPIES}}[outcome]
        if counts[name] not in allowed:
            complaints.append(f"{outcome} transaction {name}: {counts[name]} records are visible")
    strangers = counts.keys() - outcomes.keys()
    return complaints + [f"no client began transaction {name}" for name in strangers]


def judge_offsets(
    promised: Mapping[tuple[str, int], int], found: Mapping[tuple[str, int], int]
) -> list[str]:
    """Check that no committed offset is lost or below an acknowledged one."""
    return [
        f"reset: group {key[0]} had committed {offset} of partition {key[1]}, "
        f"and now has {found.get(key, -1)}"
        for key, offset in promised.items()
        if found.get(key, -1) < offset
    ]


def judge_ends(acknowledged: Iterable[Stored], ends: Mapping[int, int]) -> list[str]:
    """Check that no partition ends before one of its acknowledged records."""
    last: dict[int, int] = defaultdict(lambda: -1)
    for record in acknowledged:
        last[record.partition] = max(record.offset, last[record.partition])
    return [
        f"lost: partition {index} ends at {ends.get(index, 0)}, offset {offset} was acknowledged"
        for index, offset in last.items()
        if ends.get(index, 0) <= offset
    ]


def judge_transformed(inputs: Iterable[Stored], outputs: Iterable[Stored]) -> list[str]:
    """Check that the committed output has the transformation of each input record once."""
    wanted = Counter(transformed(record) for record in inputs)
    visible = Counter(record.value for record in outputs)
    missing = [f"not transformed: {value}" for value in wanted - visible]
    return missing + [f"transformed twice, or of no input: {value}" for value in visible - wanted]


def judge_reading(history: History, found: Iterable[Stored]) -> list[str]:
    """Every record has been given to some member: no committed offset ran ahead."""
    return [
        f"skipped: no member was given {record.partition}:{record.offset}"
        for record in found
        if record.offset not in history.read[record.partition]
    ]


def judge_views(committed: list[Stored], uncommitted: list[Stored]) -> list[str]:
    """`read_committed` shows nothing that `read_uncommitted` does not."""
    return [f"only in read_committed: {record}" for record in set(committed) - set(uncommitted)]
