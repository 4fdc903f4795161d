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
            for place, value in operation.delivered():
                self._observe(place, value)
        for reader in history.readers:
            for received in reader.records:
                self._observe(received.place, received.value)

    def _observe(self, place: Position, value: str) -> None:
        self._of_value[value].add(place)
        self._at[place].add(value)

    def check(self) -> Iterator[Anomaly]:
        """Yield phantoms, duplicates, inconsistent offsets and reordered writes."""
        for value, places in self._of_value.items():
            wanted = self._targets.get(value)
            for place in places:
                if place.partition != wanted:
                    text = f"{value} at {_text(place)} was sent to {wanted or 'no partition'}"
                    yield Anomaly(Kind.PHANTOM, text)
            if len(places) > 1:
                found = ", ".join(_text(place) for place in sorted(places))
                yield Anomaly(Kind.DUPLICATE, f"{value} is at {found}")
        for place, values in self._at.items():
            if len(values) > 1:
                yield Anomaly(Kind.INCONSISTENT, f"{_text(place)} has {sorted(values)}")
        yield from self._check_order()

    def _check_order(self) -> Iterator[Anomaly]:
        """A process numbers its operations in the order in which it sends."""
        sent: dict[tuple[str, str], list[tuple[int, int, int, str]]] = defaultdict(list)
        for value, places in self._of_value.items():
            operation = self.senders.get(value)
            if operation is None or len(places) > 1:
                continue
            (place,) = places
            if (place.partition, value) not in operation.records:
                continue
            index = operation.records.index((place.partition, value))
            key = operation.process, place.partition
            sent[key].append((operation.number, index, place.offset, value))
        for (_, partition), values in sent.items():
            newest, before = -1, ""
            for _, _, offset, value in sorted(values):
                if offset < newest:
                    text = f"{value} at {partition}:{offset} was sent after {before} at {newest}"
                    yield Anomaly(Kind.REORDERED, text)
                else:
                    newest, before = offset, value


def _text(place: Position) -> str:
    return f"{place.partition}:{place.offset}"
