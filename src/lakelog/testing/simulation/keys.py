"""What a compacted partition has to keep of each key, and what of one that was deleted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lakelog.testing.simulation.laws import Law

if TYPE_CHECKING:
    from lakelog.testing.simulation.ledger import Ledger, Place

TOMBSTONE = b"-"
"""Where the name of a tombstone begins, behind its key and a slash."""


def check_keys(ledger: Ledger, place: Place, found: dict[int, bytes]) -> None:
    """Each key has its newest value, or one that is newer than what its writers know of.

    Of a key that was deleted there may be nothing left, once its tombstone need not stay.
    """
    partition = ledger.partition(place)
    newest: dict[bytes, int] = {}
    for offset, value in found.items():
        key = value.partition(b"/")[0]
        newest[key] = max(offset, newest.get(key, -1))
    for key, value in _newest_of_keys(ledger, place).items():
        sent, last = ledger.sent[value], newest.get(key, -1)
        if last >= sent.acked or partition.is_hidden(sent.acked):
            continue
        law = Law.KEYS_KEPT
        if value.startswith(key + b"/" + TOMBSTONE):
            if last < 0 and partition.may_drop_tombstone(sent.made_at):
                continue
            law = Law.TOMBSTONE_KEPT if last < 0 else Law.DELETED
        text = f"{place} has lost {value!r}, the newest of its key, at {sent.acked}"
        ledger.violation(law, text)


def _newest_of_keys(ledger: Ledger, place: Place) -> dict[bytes, bytes]:
    """By key, the value with the largest offset of all that are certainly committed."""
    newest: dict[bytes, bytes] = {}
    for value, sent in ledger.sent.items():
        transaction = sent.transaction
        if sent.place != place or sent.acked < 0:
            continue
        if transaction is not None and not transaction.is_committed:
            continue
        key = value.partition(b"/")[0]
        if key not in newest or ledger.sent[newest[key]].acked < sent.acked:
            newest[key] = value
    return newest
