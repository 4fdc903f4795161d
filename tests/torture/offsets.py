"""Committed offsets of groups: acknowledged commits never go backwards, and skip no record.

Members of a group begin at the committed offset and commit the end of each batch, so the
acknowledged offsets of a partition rise. A commit with a smaller offset succeeds only if a member
that the group had removed was not fenced, or if the offset was lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from torture.anomalies import Anomaly, Kind
from torture.history import OK, History, Position


class _Offset(NamedTuple):
    invoked: int
    completed: int
    offset: int
    name: str
    is_commit: bool


def check_offsets(history: History) -> Iterator[Anomaly]:
    """Yield commit regressions, and records that a group has passed unread."""
    found: dict[tuple[str, str], list[_Offset]] = defaultdict(list)
    for each in history.of_kind("commit", "committed", "txn"):
        if each.outcome == OK and each.group is not None and each.completed is not None:
            for partition, offset in each.commits.items():
                name = f"{each.process}/{each.number}"
                # The offsets of a transaction are committed with its end.
                invoked = each.invoked if each.ending is None else each.ending
                entry = _Offset(invoked, each.completed, offset, name, each.kind != "committed")
                found[each.group, partition].append(entry)
    for (group, partition), offsets in found.items():
        yield from _check_regressions(f"{group} {partition}", offsets)
    yield from _check_unread(history, found)


def _check_regressions(where: str, offsets: list[_Offset]) -> Iterator[Anomaly]:
    done = sorted((each for each in offsets if each.is_commit), key=lambda each: each.completed)
    position, highest = 0, None
    for each in sorted(offsets, key=lambda each: each.invoked):
        while position < len(done) and done[position].completed < each.invoked:
            if highest is None or done[position].offset > highest.offset:
                highest = done[position]
            position += 1
        if highest is not None and each.offset < highest.offset:
            text = f"{where} is {each.offset} by {each.name} after {highest.offset}"
            yield Anomaly(Kind.REGRESSION, f"{text} by {highest.name}")


def _check_unread(
    history: History, found: dict[tuple[str, str], list[_Offset]]
) -> Iterator[Anomaly]:
    """A group that commits without transactions has received each record below its offset."""
    groups = {each.group for each in history.of_kind("commit") if each.group}
    received = {
        each.place for reader in history.readers if reader.is_committed for each in reader.records
    }
    for group in sorted(groups):
        members = [reader for reader in history.readers if reader.group == group]
        read: set[Position] = {each.place for member in members for each in member.records}
        for position in sorted(received - read):
            offsets = found[group, position.partition]
            if position.offset < max(
                (each.offset for each in offsets if each.is_commit), default=0
            ):
                where = f"{position.partition}:{position.offset}"
                yield Anomaly(Kind.MISSING, f"{group} passed {where} without receiving it")
