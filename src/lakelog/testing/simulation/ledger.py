"""What clients were told, kept apart from the broker, and whether it all can be true.

Each value that a client writes is unique, so one value at two offsets, two values at one offset, a
value nobody wrote and an acknowledged value that is not there can all be told. What a failed
request did is unknown: its values may be there, once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from lakelog.testing.simulation.keys import check_keys
from lakelog.testing.simulation.laws import Law

Place = tuple[str, int]
"""A topic and a partition of it."""


class Fate(Enum):
    """Of a transaction, as its producer knows it."""

    OPEN = "open"
    COMMITTING = "committing"
    """The commit was asked for, and may or may not be done."""
    COMMITTED = "committed"
    ABORTED = "aborted"
    """Nobody has asked for its commit, and nobody will."""


@dataclass(eq=False, slots=True)
class Transaction:
    name: str
    fate: Fate = Fate.OPEN
    values: dict[bytes, Place] = field(default_factory=dict)
    """Those that were acknowledged."""
    places: set[Place] = field(default_factory=set)
    """Where it may have records."""
    ends: Mapping[Place, int] = field(default_factory=dict)
    """Where the logs ended when its end was acknowledged: all that it consists of is below."""
    torn: bool = False
    """Whether some of what it consists of went with the end of a log, as nobody promised."""

    @property
    def is_open_or_aborted(self) -> bool:
        return not self.torn and self.fate in (Fate.OPEN, Fate.ABORTED)

    @property
    def is_committed(self) -> bool:
        return not self.torn and self.fate is Fate.COMMITTED


@dataclass(slots=True)
class Sent:
    """One value that was sent; `once` if the producer is idempotent."""

    place: Place
    once: bool
    transaction: Transaction | None
    acked: int = -1
    """The offset that the producer was told."""
    seen: int = -1
    made_at: float = 0.0
    number: int = 0
    """Rises in the order of sending."""
    producer_id: int = -1
    timestamp: int = 0
    """Of the record, in milliseconds."""
    twice: bool = False
    """Whether it may be there once more, its producer having been forgotten."""


class Shadow(NamedTuple):
    """Offsets from `first` to before `end` that the damage of the batch at `base` may hide."""

    first: int
    base: int
    end: int


@dataclass(slots=True)
class PartitionLedger:
    values: dict[int, bytes] = field(default_factory=dict)
    start: int = 0
    """Below it records may be missing: they were deleted, or are old enough to be."""
    trimmed: int = 0
    """A client was told that records below it are deleted."""
    end: int = 0
    compacted: bool = False
    may_drop_tombstone: Callable[[float], bool] = lambda made_at: False
    """Whether compaction need not keep one any longer that was made then."""
    cuts: int = 0
    """How often its end was lost."""
    shadows: list[Shadow] = field(default_factory=list)
    retention: Callable[[int], list[int]] | None = None
    """Which of the records below a start of the log had to stay."""
    epochs: dict[int, int] = field(default_factory=dict)
    """By the last offset of each batch that was read, its leader epoch."""
    has_times: bool = True
    """Whether records keep their clients' timestamps, and stay until somebody deletes them."""

    def is_hidden(self, offset: int) -> bool:
        """Whether a damage may be told instead of the record at `offset`."""
        return any(shadow.first <= offset < shadow.end for shadow in self.shadows)


class Ledger:
    """`violations` are texts; the run has failed if there is one."""

    def __init__(self) -> None:
        self.violations: list[str] = []
        self.broken: set[Law] = set()
        self.counts: Counter[str] = Counter()
        self.sent: dict[bytes, Sent] = {}
        self.partitions: dict[Place, PartitionLedger] = {}
        self.transactions: list[Transaction] = []
        self.forgets: Callable[[Place, float], bool] = lambda place, since: False
        """Whether a broker may have forgotten its producers by their age, since some time."""
        self.on_promise: Callable[[], object] = lambda: None
        """Called when a client has been told that something is done."""

    def violation(self, law: Law, text: str) -> None:
        self.broken.add(law)
        if text not in self.violations:
            self.violations.append(text)

    def expect(self, law: Law, condition: bool, text: str) -> None:
        if not condition:
            self.violation(law, text)

    def partition(self, place: Place) -> PartitionLedger:
        return self.partitions.setdefault(place, PartitionLedger())

    # Writing

    def will_send(
        self,
        place: Place,
        values: Iterable[bytes],
        *,
        once: bool = False,
        transaction: Transaction | None = None,
        made_at: float = 0.0,
        producer_id: int = -1,
        timestamp: int = 0,
    ) -> None:
        """`made_at` is when the batch was made, for who may send it again."""
        for value in values:
            assert value not in self.sent
            if transaction is not None:
                transaction.places.add(place)
            self.counts["sent"] += 1
            self.sent[value] = Sent(
                place,
                once,
                transaction,
                made_at=made_at,
                number=self.counts["sent"],
                producer_id=producer_id,
                timestamp=timestamp,
            )

    def acknowledged(self, place: Place, base_offset: int, values: Iterable[bytes]) -> None:
        """`base_offset` -1 tells nothing of where they are."""
        for number, value in enumerate(values):
            sent = self.sent[value]
            self.counts["acked"] += 1
            if sent.transaction is not None:
                sent.transaction.values[value] = place
            if base_offset >= 0:
                sent.acked = base_offset + number
                self._note(place, sent.acked, value, "acknowledged")
        self.on_promise()

    def begin(self, name: str) -> Transaction:
        transaction = Transaction(name)
        self.transactions.append(transaction)
        return transaction

    # Reading

    def read(self, place: Place, offset: int, value: bytes, *, committed: bool) -> None:
        """`committed`: by a consumer of committed records only."""
        self.counts["read"] += 1
        sent = self.sent.get(value)
        if sent is None or sent.place != place:
            self.violation(
                Law.WRITTEN, f"{place} has {value!r} at {offset}, which nobody wrote there"
            )
            return
        self._note(place, offset, value, "read")
        transaction = sent.transaction
        if committed and transaction is not None and transaction.is_open_or_aborted:
            self.violation(
                Law.COMMITTED_ONLY,
                f"{place} shows {value!r} at {offset} to readers of committed records: its "
                f"transaction {transaction.name} is {transaction.fate.value}",
            )

    def _note(self, place: Place, offset: int, value: bytes, how: str) -> None:
        partition = self.partition(place)
        known = partition.values.setdefault(offset, value)
        if known != value:
            self.violation(
                Law.ONE_VALUE, f"{place} has {known!r} and {value!r} at {offset} ({how})"
            )
        partition.end = max(partition.end, offset + 1)
        sent = self.sent[value]
        if sent.once and sent.seen not in (-1, offset) and not self._may_be_twice(sent):
            self.violation(
                Law.ONCE, f"{place} has {value!r} at {sent.seen} and at {offset} ({how})"
            )
        sent.seen = offset

    def _may_be_twice(self, sent: Sent) -> bool:
        """What is sent again is new to a log that has forgotten its producer meanwhile.

        Who is in a transaction is not forgotten.
        """
        if not sent.twice and self._may_be_forgotten(sent):
            sent.twice = True
            self.counts["written again by who was forgotten"] += 1
        return sent.twice

    def note_epoch(self, place: Place, last_offset: int, epoch: int) -> None:
        """A batch that was read ends at `last_offset`; compaction may put another one there."""
        partition = self.partition(place)
        if not partition.compacted:
            partition.epochs[last_offset] = epoch

    def timestamps(self, place: Place) -> dict[int, int]:
        """Of the records that clients know of, by offset; nothing where they may be others."""
        partition = self.partition(place)
        if not partition.has_times or partition.compacted:
            return {}
        return {
            offset: self.sent[value].timestamp
            for offset, value in partition.values.items()
            if offset >= partition.start
        }

    def _may_be_forgotten(self, sent: Sent) -> bool:
        """Whether what was sent again may be taken for new."""
        return sent.transaction is None and self.forgets(sent.place, sent.made_at)

    # What may go

    def cut(self, place: Place, end: int) -> None:
        """What lay from `end` on is not there any more, as nobody promised."""
        partition = self.partition(place)
        partition.cuts += 1
        for offset in [offset for offset in partition.values if offset >= end]:
            sent = self.sent[partition.values.pop(offset)]
            self.counts["lost with the end of a log"] += 1
            sent.acked = sent.seen = -1
            if sent.transaction is not None:
                sent.transaction.values = {
                    value: at
                    for value, at in sent.transaction.values.items()
                    if self.sent[value].acked >= 0
                }
        partition.end = min(partition.end, end)
        for offset in [offset for offset in partition.epochs if offset >= end]:
            del partition.epochs[offset]
        for transaction in self.transactions:
            if place in transaction.places or place[0].startswith("__"):
                transaction.torn |= transaction.ends.get(place, end + 1) > end

    def check_durable(self, place: Place, end: int, damaged_at: int | None) -> None:
        """Check that whatever clients know of is below `end`, where the log ends after a restart.

        From `damaged_at` on there may be nothing left: a bit has flipped there.
        """
        partition = self.partition(place)
        lost = {
            offset: value
            for offset, value in partition.values.items()
            if max(end, partition.start) <= offset and (damaged_at is None or offset < damaged_at)
        }
        self.expect(
            Law.DURABLE,
            not lost,
            f"{place} ends at {end} after a restart; clients know of {lost}",
        )

    def deleted(self, place: Place, start: int) -> None:
        """Records below `start` may be gone."""
        partition = self.partition(place)
        partition.start = max(partition.start, start)

    def trimmed(self, place: Place, start: int) -> None:
        """A client was told that the partition begins there."""
        partition = self.partition(place)
        partition.trimmed = max(partition.trimmed, start)

    def begins(self, place: Place, start: int) -> None:
        """A reader was told so."""
        partition = self.partition(place)
        if partition.retention is not None:
            lost = partition.retention(start)
            self.expect(Law.RETAINED, not lost, f"{place} begins at {start}: {lost} had to stay")
        else:
            self.expect(
                Law.START_KEPT,
                start <= partition.start,
                f"{place} begins at {start}, and nobody has deleted so much",
            )
        self.deleted(place, start)

    def forget(self, topic: str) -> None:
        """The topic is, or may be, deleted."""
        for place in [place for place in self.partitions if place[0] == topic]:
            del self.partitions[place]
        for value in [value for value, sent in self.sent.items() if sent.place[0] == topic]:
            del self.sent[value]

    # In the end

    def check_all(self, place: Place, found: dict[int, bytes], *, committed: bool) -> None:
        """`found` is the whole partition, as it was read from its beginning to its end."""
        partition = self.partition(place)
        for offset, value in found.items():
            self.read(place, offset, value, committed=committed)
        self._check_order(place, found)
        if partition.compacted:
            check_keys(self, place, found)
            return
        for value, sent in self.sent.items():
            if sent.place != place or sent.acked < partition.start or sent.acked in found:
                continue
            if partition.is_hidden(sent.acked):
                continue
            transaction = sent.transaction
            if committed and transaction is not None and not transaction.is_committed:
                continue
            self.violation(Law.KEPT, f"{place} has lost {value!r}, acknowledged at {sent.acked}")

    def _check_order(self, place: Place, found: dict[int, bytes]) -> None:
        """What an idempotent producer sent later lies behind, as long as it is remembered."""
        newest: dict[int, int] = {}
        for offset in sorted(found):
            sent = self.sent.get(found[offset])
            if sent is None or sent.producer_id < 0 or self._may_be_forgotten(sent):
                continue
            before = newest.get(sent.producer_id, 0)
            self.expect(
                Law.IN_ORDER,
                before < sent.number,
                f"{place} has {found[offset]!r} at {offset}, behind what was sent after it",
            )
            newest[sent.producer_id] = sent.number

    def committed_end(self, place: Place) -> int:
        """Where the records of transactions end whose producers were told of their commit."""
        committed = [transaction for transaction in self.transactions if transaction.is_committed]
        values = [value for entry in committed for value, at in entry.values.items() if at == place]
        return max((self.sent[value].acked + 1 for value in values), default=0)

    def check_transactions(self, committed: set[bytes], places: Collection[Place]) -> None:
        """All or nothing: `committed` is what readers of committed records saw in `places`.

        Of what is in compacted logs anything may have been replaced since.
        """
        for transaction in self.transactions:
            if transaction.fate not in (Fate.COMMITTING, Fate.COMMITTED) or transaction.torn:
                continue
            live = [
                value
                for value, place in transaction.values.items()
                if place in places
                and self.sent[value].acked >= self.partition(place).start
                and not self.partition(place).compacted
                and not self.partition(place).is_hidden(self.sent[value].acked)
            ]
            seen = sum(value in committed for value in live)
            nothing = 0 if transaction.fate is Fate.COMMITTING else len(live)
            self.expect(
                Law.WHOLE,
                seen in (nothing, len(live)),
                f"{seen} of {len(live)} values of {transaction.name} are committed",
            )
