"""The outcome of a damage: compares a broker's responses on a folder with and without it."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import NamedTuple

from corruption.picture import Picture, RefusedRead
from lakelog.metadata.store.chain import decode_mark
from lakelog.records.batch import iter_batches
from lakelog.storage.checkpoint import MalformedCheckpoint, decode_epochs
from lakelog.storage.folder.known_logs import KnownLogs, decode_known_logs
from lakelog.storage.producers.snapshots import MalformedSnapshot, decode_snapshot
from lakelog.storage.segments.segment_index import SegmentIndex

_CODES = {"2", "14", "15", "16", "56"}
"""Error codes for data that exists, but is damaged or unavailable now."""
NOT_USED = {"lock", "disk reserve", "boot id", "broker lock", "metadata memory", "left behind"}
"""Kinds of files that each start rewrites or drops: their content does not matter."""


class Report(NamedTuple):
    """Everything that a broker on some folder returned and left behind."""

    picture: Picture | None
    """None if it did not start."""
    log: str
    files: dict[Path, bytes]
    """After it was stopped."""
    rows: list[object]
    """Of the metadata log by then."""
    was_clean: bool
    """Whether the start counted the folder as cleanly stopped."""
    is_sealed: bool
    """Whether the seal fits the folder by then."""


def files_in(folder: Path) -> dict[Path, bytes]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder): path.read_bytes() for path in paths}


def rows_in(path: Path) -> list[object]:
    """All that is relied on: other bytes of the file are free, or of writers that have ended."""
    connection = sqlite3.connect(path)
    try:
        queries = ("entry ORDER BY idx", "snapshot", "state")
        return [connection.execute(f"SELECT * FROM {query}").fetchall() for query in queries]
    except sqlite3.Error:
        return []
    finally:
        connection.close()


def judge(kind: str, path: Path, killed: bool, originals: list[Report], after: Report) -> str:
    """Return the outcome in a few words; an outcome that begins with "!" is a failure.

    Args:
        originals: reports on the undamaged folder, with and without its indexes.
    """
    is_named = path.name in after.log
    if after.picture is None:
        return "refused to start" if is_named else f"! refused without its name: {after.log}"
    wrong, refused = compare(path, originals[0].picture or {}, after.picture)
    if fault := _fault_of_seal(kind == "folder seal", is_named, refused, after):
        return f"! {fault}"
    if wrong and killed and kind.endswith(" log") and "was cut" in after.log and is_named:
        return "cut, and kept aside"
    if wrong:
        return f"! {min(wrong)}"
    if refused:
        return "refused" if is_named else "! refused without a line in the log"
    now = after.files.get(path)
    if _is_whole(kind, [report.files.get(path) for report in originals], now):
        return "rebuilt" if is_named else "as before"
    if kind == "snapshot" and _is_malformed(now):
        return "found when used"
    if kind == "metadata" and originals[0].rows == after.rows:
        return "no row changed"
    if kind.endswith(" log") and _are_deleted(path, originals[0], now):
        return "deleted records"
    return "not used" if kind in NOT_USED else "! neither found nor rebuilt"


def _fault_of_seal(is_damaged: bool, is_named: bool, refused: list[str], after: Report) -> str:
    """Return the fault of a start and stop that concerns the seal, or an empty string."""
    if not after.is_sealed:
        return "the stop left a seal that does not fit"
    if is_damaged and after.was_clean:
        return "a mark counts under a damaged seal"
    if is_damaged and not is_named:
        return "found without its name"
    return f"{min(refused)} was refused" if is_damaged and refused else ""


def compare(path: Path, old: Picture, new: Picture) -> tuple[list[str], list[str]]:
    """Return the questions with wrong answers, and the refused questions."""
    is_global = not path.parent.name
    topic = path.parent.name.removesuffix("-0")
    asked = new.keys() | {key for key in old if is_global or topic in key.split()}
    different = {key for key in asked if old.get(key) != new.get(key)}
    refused = [key for key in different if is_refusal(new.get(key))]
    wrong = []
    for key in different - set(refused):
        if not (refused and (key not in new or _is_beginning(new[key], old.get(key)))):
            wrong.append(f"{key}: {str(old.get(key))[:100]} became {str(new.get(key))[:100]}")
    return wrong, refused


def is_refusal(answer: object) -> bool:
    return isinstance(answer, RefusedRead) and str(answer) in _CODES


def _is_beginning(answer: object, whole: object) -> bool:
    """Return whether one begins with the other: a read without an index may end elsewhere."""
    if isinstance(answer, list) and isinstance(whole, list):
        common = min(len(answer), len(whole))
        return answer[:common] == whole[:common]
    return isinstance(answer, bytes) and isinstance(whole, bytes) and whole.startswith(answer)


def _is_whole(kind: str, originals: list[bytes | None], now: bytes | None) -> bool:
    if kind == "time index" and now and None not in originals:
        # Each clean stop has added the greatest timestamp of the active segment, which nothing
        # requires once the segment has grown.
        whole, rebuilt = (_times(times or b"") for times in originals)
        return rebuilt <= _times(now) <= whole
    return any(_are_equal(kind, original, now) for original in originals)


def _without_files(data: bytes) -> KnownLogs | None:
    """Return the known logs without the identities of their files, which no copy shares."""
    try:
        return {key: log._replace(files=None) for key, log in decode_known_logs(data).items()}
    except MalformedCheckpoint:
        return None


def _times(data: bytes) -> set[tuple[int, int]]:
    """Return the entries of a time index."""
    index = SegmentIndex.decode(b"", data)
    return set(zip(index.times, index.time_offsets, strict=True))


def _are_equal(kind: str, old: bytes | None, new: bytes | None) -> bool:
    if kind == "leader epochs" and old is not None and new is not None:
        try:
            before, now = decode_epochs(old), decode_epochs(new)
        except MalformedCheckpoint:
            return False
        # The epoch that has begun is written with the first record of it, or with the others.
        return before == now[: len(before)] and len(now) <= len(before) + 1
    if kind == "metadata mark" and old is not None and new is not None:
        # Ends and chains depend on the random ids of processes and on their number.
        return decode_mark(old) is not None and decode_mark(new) is not None
    if kind == "known logs" and old is not None and new is not None:
        return _without_files(old) == _without_files(new)
    if kind == "folder seal":
        return True  # each names another inode; `judge` has found that it fits
    return old == new


def _are_deleted(path: Path, original: Report, now: bytes | None) -> bool:
    """Return whether only records below the start of the log are damaged: no request reads them."""
    assert original.picture is not None
    start = original.picture[f"start of {path.parent.name.removesuffix('-0')}"]
    whole = original.files[path]
    if now is None or len(now) != len(whole) or isinstance(start, RefusedRead):
        return False
    deleted = sum(len(batch) for head, batch in iter_batches(whole) if head.last_offset < start[1])
    return now[deleted:] == whole[deleted:]


def _is_malformed(data: bytes | None) -> bool:
    try:
        decode_snapshot(data or b"")
    except MalformedSnapshot:
        return True
    return False
