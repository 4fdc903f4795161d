"""`lakelog group`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

import re
import time
from argparse import ArgumentTypeError
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.declaration import Argument, Noun
from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.interaction import confirm_deletion, for_each
from lakelog.cli.options import CommandSession, Consent, Output, open_admin
from lakelog.cli.positions import (
    Position,
    TopicPartition,
    chosen,
    cut_short,
    existing,
    parse_position,
    read_bounds,
    resolve_inside,
    shifted,
)
from lakelog.cli.render import Document, Listing, note, show

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.admin.groups import Group, GroupListing, GroupMember

app = Noun("group")

_OFFSET_COLUMNS = (
    "topic",
    "partition",
    "committed_offset",
    "log_end_offset",
    "lag",
    "lag_seconds",
    "client_id",
    "client_host",
)
_MEMBER_COLUMNS = (
    *("client_id", "client_host", "member_id", "instance_id"),
    *("protocol", "epoch", "partitions"),
)


_ISO_DURATION = re.compile(r"P(?:\d+D)?(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?")


def _offset(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ArgumentTypeError(f"{number} is not 0 or more")
    return number


@app.command("list")
def list_groups(*, session: CommandSession, output: Output) -> None:
    """List groups with the number of their members and their lag."""
    with open_admin(session) as admin:
        groups = admin.groups.list()
        show(listing(groups, _progress_of(admin, groups)), output.format)


class GroupProgress(NamedTuple):
    """The number of a group's members, and the records that it has not read.

    Either is `None` if it is unknown. The lag is unknown without committed offsets.
    """

    members: int | None
    lag: int | None


UNKNOWN = GroupProgress(None, None)
NOTHING_KNOWN: Mapping[str, GroupProgress] = {}


def _progress_of(admin: Admin, groups: Iterable[GroupListing]) -> dict[str, GroupProgress]:
    """Return the progress of groups, except of groups that end meanwhile."""
    members: dict[str, int] = {}
    committed: dict[str, dict[TopicPartition, int]] = {}
    for name in (group.group_id for group in groups):
        with suppress(KafkaError):
            members[name] = len(admin.groups.describe(name).members)
            committed[name] = _committed(admin, name)
    keys = {key for offsets in committed.values() for key in offsets}
    ends = _ends(admin, keys)
    return {
        name: GroupProgress(number, _lag(committed.get(name, {}), ends))
        for name, number in members.items()
    }


def _ends(admin: Admin, keys: Collection[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log end offsets of the partitions that exist, and whose leaders know the ends."""
    from lakelog.client.offsets import LATEST

    if not keys:
        return {}
    ends = admin.known_offsets(dict.fromkeys(existing(admin, keys), LATEST))
    return {key: end.offset for key, end in ends.items()}


def _lag(committed: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int | None:
    """Return the unread records of all partitions; unknown if that of one is unknown."""
    lags = [max(ends[key] - offset, 0) for key, offset in committed.items() if key in ends]
    return sum(lags) if lags and len(lags) == len(committed) else None


@app.command(group="Group to describe.")
def describe(group: str, *, session: CommandSession, output: Output) -> None:
    """Describe a group: its members, committed offsets and lag.

    The lag in seconds is the age of the oldest record that the group has not read.
    """
    with open_admin(session) as admin:
        described = _find(admin, group)
        committed = _committed(admin, group)
        assigned = [key for member in described.members for key in member.partitions]
        ends = _ends(admin, [*committed, *assigned])
        unread = {
            key: offset for key, offset in committed.items() if key in ends and offset < ends[key]
        }
        since = admin.groups.unread_since(unread)
    now_ms = time.time_ns() // 1_000_000
    ages = {key: max(now_ms - written, 0) / 1000 for key, written in since.items()}
    caught_up = dict.fromkeys(committed.keys() & ends.keys() - unread.keys(), 0.0)
    show(document(described, committed, ends, {**caught_up, **ages}), output.format)


@app.command(
    group="Group to reset. It must have no members.",
    topic=Argument(
        "Topic to reset, or NAME:0,2 for some of its partitions; may be repeated "
        "(default: all partitions with a committed offset).",
        "-t",
    ),
    to="New offset: start, end, 42, +10, -10 or @TIME, as for `consume -o`.",
    shift_by="Move the committed offsets by this number.",
    to_earliest="Same as --to start.",
    to_latest="Same as --to end.",
    to_offset=Argument("Same as --to N.", type=_offset, metavar="N"),
    to_datetime="Same as --to @TIME.",
    by_duration="To the first record of the last 1h30m, 7d or, as in Kafka's tool, PT1H30M or P7D.",
    execute="Apply the change.",
)
def reset(
    group: str,
    *,
    topic: list[str] | None = None,
    to: str | None = None,
    shift_by: int | None = None,
    to_earliest: bool = False,
    to_latest: bool = False,
    to_offset: int | None = None,
    to_datetime: str | None = None,
    by_duration: str | None = None,
    execute: bool = False,
    session: CommandSession,
    output: Output,
) -> None:
    """Show how a reset would change a group's offsets; with --execute, change them."""
    named = {
        "start": to_earliest,
        "end": to_latest,
        str(to_offset): to_offset is not None,
        f"@{to_datetime}": to_datetime is not None,
        f"@-{_duration(by_duration)}": by_duration is not None,
        str(to): to is not None,
    }
    position = _target(named, shifts=shift_by is not None)
    with open_admin(session) as admin:
        description, committed = _lookup(admin, group), _committed(admin, group)
        other = "" if description else _suggestion(admin, group)
        if not committed and not topic:
            raise _without_offsets(group, description, other)
        keys = chosen(admin, topic or [], committed)
        bounds = read_bounds(admin, keys)
        if position is None:
            targets = shifted(bounds, committed, shift_by or 0)
        else:
            targets = resolve_inside(admin, position, bounds)
        if execute:
            admin.groups.commit(group, targets)
    show(plan(group, committed, targets, executed=execute), output.format)
    if shift_by is not None:
        _note_cut(committed, targets, shift_by, quiet=session.quiet)
    if description is None:
        verb = "did not exist before" if execute else "does not exist yet"
        note(f"group '{group}' {verb}; {other}".rstrip("; "), quiet=session.quiet)
    if not execute:
        _say_what_next(description, quiet=session.quiet)


@app.command(groups=Argument("Groups to delete.", metavar="GROUP"))
def delete(groups: Sequence[str], *, session: CommandSession, consent: Consent) -> int:
    """Delete groups with their committed offsets. They must have no members."""
    with open_admin(session) as admin:
        present = [name for name in groups if _lookup(admin, name) is not None]
        confirm_deletion(present, "offsets", yes=consent.yes)

        def remove(name: str) -> None:
            if name not in present:
                _find(admin, name)
            admin.groups.delete(name)
            note(f"Deleted group '{name}'", quiet=session.quiet)

        return for_each(groups, remove)


def _duration(text: str | None) -> str:
    """Return a duration of ISO 8601, such as PT1H30M, in the form of this command: 1h30m."""
    match = _ISO_DURATION.fullmatch(text or "")
    return "".join(match[0].removeprefix("P").split("T")).lower() if match else text or ""


def _target(named: Mapping[str, bool], *, shifts: bool) -> Position | None:
    """Return the given target, or `None` for a shift. Raises `CliError` unless there is one."""
    targets = [text for text, is_given in named.items() if is_given]
    if len(targets) + shifts != 1:
        raise CliError("LL0902", "specify exactly one target", "for example --to-earliest")
    return parse_position(targets[0], time.time_ns() // 1_000_000) if targets else None


def _find(admin: Admin, name: str) -> Group:
    description = _lookup(admin, name)
    if description is None:
        raise CliError("LL0201", f"group '{name}' does not exist", _suggestion(admin, name))
    return description


def _lookup(admin: Admin, name: str) -> Group | None:
    """Return the group, which may have no members; `None` if it does not exist."""
    try:
        description = admin.groups.describe(name)
    except KafkaError as error:
        if error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        return None
    return None if description.state == "Dead" and not admin.groups.offsets(name) else description


def _suggestion(admin: Admin, name: str) -> str:
    return suggestion(name, [row.group_id for row in admin.groups.list()])


def _without_offsets(name: str, group: Group | None, hint: str) -> CliError:
    what = "has no offsets" if group else "does not exist"
    return CliError(
        "LL0201", f"group '{name}' {what}", hint or "pass --topic NAME to commit its offsets"
    )


def _committed(admin: Admin, group: str) -> dict[TopicPartition, int]:
    return {key: committed.offset for key, committed in admin.groups.offsets(group).items()}


def listing(
    groups: Iterable[GroupListing], progress: Mapping[str, GroupProgress] = NOTHING_KNOWN
) -> Listing:
    """Return one row per group."""
    rows = [
        {
            "group": group.group_id,
            "state": group.state or None,
            "type": group.group_type or None,
            "protocol_type": group.protocol_type or None,
            "members": progress.get(group.group_id, UNKNOWN).members,
            "lag": progress.get(group.group_id, UNKNOWN).lag,
        }
        for group in groups
    ]
    return Listing(rows, empty="no groups")


def document(
    group: Group,
    committed: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    ages_s: Mapping[TopicPartition, float],
) -> Document:
    """Return the description of one group.

    The lag of a partition without a committed offset or without a log is null, and so is the
    group's lag then.

    Args:
        ages_s: the age of the oldest unread record in seconds; 0 if there is none.
    """
    owners = {key: member for member in group.members for key in member.partitions}
    offsets = [
        _progress(key, committed.get(key), ends.get(key), owners.get(key))
        | {"lag_seconds": _rounded(ages_s.get(key))}
        for key in sorted({*committed, *owners})
    ]
    members = [_member(member) for member in group.members]
    facts = {
        "group": group.group_id,
        "state": group.state,
        "type": group.group_type,
        "protocol_type": group.protocol_type or None,
        "protocol": group.protocol or None,
        "epoch": group.epoch if group.epoch >= 0 else None,
        "lag": _over_all(sum, [row["lag"] for row in offsets]),
        "lag_seconds": _over_all(max, [row["lag_seconds"] for row in offsets]),
    }
    parts = [Listing(offsets, _OFFSET_COLUMNS, empty="no offsets are committed")]
    if members:
        parts.append(Listing(members, _MEMBER_COLUMNS))
    return Document({**facts, "members": members, "offsets": offsets}, facts, parts)


def _member(member: GroupMember) -> dict[str, Any]:
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "client_host": member.client_host,
        "protocol": member.protocol,
        "epoch": member.epoch if member.epoch >= 0 else None,
        "partitions": [f"{topic}-{number}" for topic, number in member.partitions],
    }


def _over_all(
    combine: Callable[[Iterable[float]], float], values: Sequence[float | None]
) -> float | None:
    """Return the total of all partitions; unknown if that of one partition is unknown."""
    numbers = [value for value in values if value is not None]
    return combine(numbers) if numbers and len(numbers) == len(values) else None


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 3)


def _progress(
    key: TopicPartition, committed: int | None, end: int | None, owner: GroupMember | None
) -> dict[str, Any]:
    is_known = committed is not None and end is not None
    return {
        "topic": key[0],
        "partition": key[1],
        "committed_offset": committed,
        "log_end_offset": end,
        "lag": max(end - committed, 0) if is_known else None,  # type: ignore[operator]
        "member_id": owner.member_id if owner else None,
        "client_id": owner.client_id if owner else None,
        "client_host": owner.client_host if owner else None,
    }


def _note_cut(
    committed: Mapping[TopicPartition, int],
    targets: Mapping[TopicPartition, int],
    by: int,
    *,
    quiet: bool,
) -> None:
    for key in cut_short(committed, targets, by):
        note(
            f"{key[0]}-{key[1]}: the shift ends at the limit of the log, {targets[key]}",
            quiet=quiet,
        )


def _say_what_next(group: Group | None, *, quiet: bool) -> None:
    if group is not None and group.members:
        note("the group has members; stop them first", quiet=quiet)
    note("dry run; add --execute to apply", quiet=quiet)


def plan(
    group: str,
    committed: Mapping[TopicPartition, int],
    targets: Mapping[TopicPartition, int],
    *,
    executed: bool,
) -> Document:
    """Return the rows of a plan: present and new offset of each partition."""
    rows = [
        {
            "topic": key[0],
            "partition": key[1],
            "committed_offset": committed.get(key),
            "new_offset": offset,
            "change": offset - committed[key] if key in committed else None,
        }
        for key, offset in sorted(targets.items())
    ]
    data = {"group": group, "executed": executed, "plan": rows}
    return Document(data, {"group": group, "executed": executed}, [Listing(rows)])
