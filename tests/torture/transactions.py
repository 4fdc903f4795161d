"""Transactions: all records or none, and each input is processed once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torture.anomalies import Anomaly, Kind
from torture.history import OK, History, Operation, Position


def check_transactions(history: History) -> Iterator[Anomaly]:
    """Yield torn transactions and inputs that were processed twice or not at all."""
    visible = {
        received.value
        for reader in history.readers
        if reader.is_committed
        for received in reader.records
    }
    processed: dict[tuple[str, Position], list[Operation]] = defaultdict(list)
    for operation in history.of_kind("txn"):
        seen = [value for _, value in operation.records if value in visible]
        if history.is_complete and 0 < len(seen) < len(operation.records):
            text = f"{len(seen)} of {len(operation.records)} records of {_name(operation)}"
            yield Anomaly(Kind.TORN, f"{text} are visible")
        if operation.outcome == OK or seen:
            for position in operation.inputs:
                processed[operation.group or "", position].append(operation)
    for (group, position), operations in processed.items():
        if len(operations) > 1:
            names = ", ".join(_name(each) for each in operations)
            where = f"{position.partition}:{position.offset}"
            yield Anomaly(Kind.AGAIN, f"{group} processed {where} in {names}")
    if history.is_complete:
        yield from _check_all_processed(history, set(processed))


def _check_all_processed(
    history: History, processed: set[tuple[str, Position]]
) -> Iterator[Anomaly]:
    """Every received record below a group's committed offset is an input of the group."""
    ends: dict[tuple[str, str], int] = defaultdict(int)
    groups = {each.group for each in history.of_kind("txn") if each.inputs and each.group}
    for operation in history.of_kind("txn"):
        if operation.outcome == OK and operation.group is not None:
            for partition, end in operation.commits.items():
                key = operation.group, partition
                ends[key] = max(end, ends[key])
    received = {
        each.place for reader in history.readers if reader.is_committed for each in reader.records
    }
    for group in sorted(groups):
        for position in sorted(received):
            if (
                position.offset < ends[group, position.partition]
                and (group, position) not in processed
            ):
                where = f"{position.partition}:{position.offset}"
                yield Anomaly(Kind.MISSING, f"{group} passed {where} without an output")


def _name(operation: Operation) -> str:
    return f"{operation.process}/{operation.number}"
