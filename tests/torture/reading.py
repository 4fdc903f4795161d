"""What consumers must, may and must not receive.

A consumer receives every visible record between its start and the last record that it received.
Visible at `read_committed` are acknowledged records (of a transaction: whose commit succeeded), and
every record that any other such consumer received. At `read_uncommitted` all records with a
delivery report and all received records are visible.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from torture.anomalies import Anomaly, Kind
from torture.history import OK, History, Position, Reader
from torture.places import Places


def check_reading(history: History, positions: Places) -> Iterator[Anomaly]:
    """Yield the anomalies of all readers."""
    for reader in history.readers:
        yield from _check_positions(reader)
        yield from _check_commits(reader, positions)
    for is_committed in (True, False):
        yield from _check_coverage(history, is_committed)


def _check_positions(reader: Reader) -> Iterator[Anomaly]:
    nexts = dict(reader.starts)
    for position, value, _ in reader.records:
        if position.offset < nexts.get(position.partition, 0):
            text = f"{reader.name} received {value} at {position.partition}:{position.offset}, "
            yield Anomaly(Kind.BACKWARDS, f"{text}not from {nexts[position.partition]} on")
        nexts[position.partition] = position.offset + 1


def _check_commits(reader: Reader, positions: Places) -> Iterator[Anomaly]:
    if not reader.is_committed:
        return
    for position, value, at in reader.records:
        sender = positions.senders.get(value)
        if sender is None:
            continue
        where = f"{reader.name} received {value} at {position.partition}:{position.offset}"
        if not sender.may_be_visible:
            yield Anomaly(Kind.ABORTED, f"{where}; operation {sender.number} was not committed")
        elif sender.ending is not None and at < sender.ending:
            yield Anomaly(Kind.EARLY, f"{where} before the call of commit")


def _check_coverage(history: History, is_committed: bool) -> Iterator[Anomaly]:
    """Compare each reader with the visible records between its start and its last record."""
    readers = [each for each in history.readers if each.is_committed == is_committed]
    seen = {received.place for each in readers for received in each.records}
    acknowledged = _acknowledged(history, is_committed)
    offsets: dict[str, list[int]] = defaultdict(list)
    everywhere = seen if is_committed else _all_received(history)
    for partition, offset in sorted(everywhere | acknowledged.keys()):
        offsets[partition].append(offset)
    reached: dict[str, int] = defaultdict(int)
    lost: set[Position] = set()
    for reader in readers:
        for position in _absent(reader, offsets, reached):
            if position in seen:
                text = f"{reader.name} did not receive {position.partition}:{position.offset}"
                yield Anomaly(Kind.SKIPPED, text)
            else:
                lost.add(position)
    if history.is_complete and readers:
        lost.update(p for p in everywhere | acknowledged.keys() if p.offset >= reached[p.partition])
    for position in sorted(lost):
        value = acknowledged.get(position, "a record that was received")
        yield Anomaly(Kind.LOST, f"{value} at {position.partition}:{position.offset}")


def _acknowledged(history: History, is_committed: bool) -> dict[Position, str]:
    return {
        position: value
        for operation in history.of_kind("send", "txn")
        if operation.outcome == OK or not is_committed
        for position, value in operation.delivered()
    }


def _all_received(history: History) -> set[Position]:
    return {received.place for each in history.readers for received in each.records}


def _absent(
    reader: Reader, offsets: dict[str, list[int]], reached: dict[str, int]
) -> Iterator[Position]:
    """Yield visible places that the reader passed without receiving them."""
    received: dict[str, set[int]] = defaultdict(set)
    for each in reader.records:
        received[each.place.partition].add(each.place.offset)
    for partition, found in received.items():
        last = max(found)
        reached[partition] = max(reached[partition], last + 1)
        visible = offsets[partition]
        first = bisect_left(visible, reader.starts.get(partition, min(found)))
        for offset in visible[first : bisect_left(visible, last)]:
            if offset not in found:
                yield Position(partition, offset)
