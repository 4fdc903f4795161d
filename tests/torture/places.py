"""Where each value is, by the observations of all clients: in one place, alone.

Any observation counts: a delivery report, and a record that a consumer received at any isolation
level. Both come from below the high watermark (acks=all), so they may not change afterwards.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from torture.anomalies import Anomaly, Kind
from torture.history import History, Operation, Position


class Places:
    """Observed places by value and partition, and the operation that sent each value."""

    def __init__(self, history: History) -> None:
        self.senders: dict[str, Operation] = {}
        self._targets: dict[str, str] = {}
        self._of_value: dict[str, set[Position]] = defaultdict(set)
        self._at: dict[Position, set[str]] = defaultdict(set)
        for operation in history.of_kind("send", "txn"):
            for partition, value in operation.records:
                self.senders[value] = operation
                self._targets[value] = partition
            for position, value in operation.delivered():
                self._observe(position, value)
        for reader in history.readers:
            for received in reader.records:
                self._observe(received.place, received.value)

    def _observe(self, position: Position, value: str) -> None:
        self._of_value[value].add(position)
        self._at[position].add(value)

    def check(self) -> Iterator[Anomaly]:
        """Yield phantoms, duplicates, inconsistent offsets and reordered writes."""
        for value, positions in self._of_value.items():
            wanted = self._targets.get(value)
            for position in positions:
                if position.partition != wanted:
                    text = f"{value} at {_text(position)} was sent to {wanted or 'no partition'}"
                    yield Anomaly(Kind.PHANTOM, text)
            if len(positions) > 1:
                found = ", ".join(_text(position) for position in sorted(positions))
                yield Anomaly(Kind.DUPLICATE, f"{value} is at {found}")
        for position, values in self._at.items():
            if len(values) > 1:
                yield Anomaly(Kind.INCONSISTENT, f"{_text(position)} has {sorted(values)}")
        yield from self._check_order()

    def _check_order(self) -> Iterator[Anomaly]:
        """A process numbers its operations in the order in which it sends."""
        sent: dict[tuple[str, str], list[tuple[int, int, int, str]]] = defaultdict(list)
        for value, positions in self._of_value.items():
            operation = self.senders.get(value)
            if operation is None or len(positions) > 1:
                continue
            (position,) = positions
            if (position.partition, value) not in operation.records:
                continue
            index = operation.records.index((position.partition, value))
            key = operation.process, position.partition
            sent[key].append((operation.number, index, position.offset, value))
        for (_, partition), values in sent.items():
            newest, before = -1, ""
            for _, _, offset, value in sorted(values):
                if offset < newest:
                    text = f"{value} at {partition}:{offset} was sent after {before} at {newest}"
                    yield Anomaly(Kind.REORDERED, text)
                else:
                    newest, before = offset, value


def _text(position: Position) -> str:
    return f"{position.partition}:{position.offset}"
