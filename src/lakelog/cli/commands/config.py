"""`lakelog config`: get, set and explain settings of topics, brokers and groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from lakelog.base.errors import KafkaError
from lakelog.cli.declaration import Argument, Arguments, Noun
from lakelog.cli.failures import CliError
from lakelog.cli.options import CommandSession, Output, open_admin
from lakelog.cli.render import Document, Listing, note, show, show_all
from lakelog.cli.settings import (
    change_settings,
    check_known,
    parse_changes,
    refusal,
    shown_value,
    source_name,
    whose,
)

if TYPE_CHECKING:
    from lakelog.client.admin import Admin, ResourceType
    from lakelog.client.admin.configs import ConfigEntry

app = Noun("config")

_COLUMNS = ("name", "value", "source")


@dataclass(frozen=True, slots=True, kw_only=True)
class Of:
    """The owner of the settings; by default the broker that answers."""

    topic: str | None = None
    broker: int | None = None
    all_brokers: bool = False
    group: str | None = None

    arguments: ClassVar[Arguments] = {
        "topic": "A topic's settings.",
        "broker": "A broker's settings, by its node id.",
        "all_brokers": "Values that apply to all brokers.",
        "group": "A group's settings.",
    }

    def resource(self, admin: Admin) -> tuple[ResourceType, str]:
        """Return type and name of the resource.

        Raises `CliError` if several are given, and for a broker that is not in the cluster.
        """
        from lakelog.client.admin import ResourceType

        named = self.named()
        if named is not None and self.broker is None:
            return named
        broker_ids = sorted(admin.describe_cluster().brokers)
        if self.broker is not None and self.broker not in broker_ids:
            ids = ", ".join(map(str, broker_ids))
            raise CliError(
                "LL0902", f"broker {self.broker} is not in the cluster", f"its brokers are {ids}"
            )
        return ResourceType.BROKER, str(broker_ids[0] if self.broker is None else self.broker)

    def named(self) -> tuple[ResourceType, str] | None:
        """Return type and name without asking a broker, or `None` if no option was given.

        Raises `CliError` if several are given.
        """
        from lakelog.client.admin import ResourceType

        named: list[tuple[ResourceType, str]] = []
        if self.topic is not None:
            named.append((ResourceType.TOPIC, self.topic))
        if self.broker is not None:
            named.append((ResourceType.BROKER, str(self.broker)))
        if self.group is not None:
            named.append((ResourceType.GROUP, self.group))
        if self.all_brokers:
            named.append((ResourceType.BROKER, ""))
        if len(named) > 1:
            raise CliError(
                "LL0902", "--topic, --broker, --all-brokers and --group are mutually exclusive"
            )
        return named[0] if named else None


@app.command(
    keys="Keys to show.",
    everything=Argument("Also show settings at their default.", "-a", "--all"),
    offline=Argument(
        "Data folder of a stopped broker. Shows the values stored there, by default for "
        "all topics, brokers and groups."
    ),
)
def get(
    keys: Sequence[str] = (),
    *,
    of: Of,
    everything: bool = False,
    offline: Path | None = None,
    session: CommandSession,
    output: Output,
) -> None:
    """Show settings that differ from their default, all settings, or given keys."""
    if offline is not None:
        show(_stored_listing(offline, of, keys), output.format)
        return
    with open_admin(session) as admin:
        entries = _described(admin, of, keys)
    shown = [entry for entry in entries if keys or everything or not entry.is_default]
    show(listing(shown), output.format)


@app.command(
    "set",
    changes="KEY=VALUE to set.",
    unset="KEY to reset to its default; may be repeated.",
    dry_run="Check the change on the broker without making it.",
    offline=Argument(
        "Data folder of a stopped broker. Changes the values stored there, for example a "
        "value that prevents the broker from starting."
    ),
)
def set_values(
    changes: Sequence[str] = (),
    *,
    of: Of,
    unset: list[str] | None = None,
    dry_run: bool = False,
    offline: Path | None = None,
    session: CommandSession,
    output: Output,
) -> None:
    """Change settings; either all changes are made or none."""
    values = parse_changes(changes, "setting", unset or ())
    if not values:
        raise CliError("LL0902", "nothing to change", "specify KEY=VALUE or --unset KEY")
    if offline is not None:
        kind, name = _change_offline(offline, of, values, dry_run=dry_run)
    else:
        with open_admin(session) as admin:
            kind, name = of.resource(admin)
            change_settings(admin, kind, name, values, dry_run=dry_run)
    if output.format != "table":
        show(altered(kind, name, values, dry_run=dry_run), output.format)
    did = "Dry run: the broker accepts" if dry_run else "Changed"
    note(f"{did} {', '.join(values)} of {whose(kind, name)}", quiet=session.quiet)


@app.command(keys=Argument("Keys to explain.", metavar="KEY"))
def explain(keys: Sequence[str], *, of: Of, session: CommandSession, output: Output) -> None:
    """Explain where a value comes from: all its sources, in order of precedence."""
    with open_admin(session) as admin:
        entries = _described(admin, of, keys)
    show_all([document(entry) for entry in entries], output.format)


def _stored_listing(folder: Path, of: Of, keys: Sequence[str]) -> Listing:
    from lakelog.cli.commands.stored_configs import read_stored

    named = of.named()
    rows = [
        {"resource_type": kind.name.lower(), "resource": name or None, "name": key, "value": value}
        for (kind, name), values in read_stored(folder).items()
        if named is None or (int(named[0]), named[1]) == (int(kind), name)
        for key, value in values.items()
        if not keys or key in keys
    ]
    return Listing(rows, empty="no values are stored")


def _change_offline(
    folder: Path, of: Of, values: Mapping[str, str | None], *, dry_run: bool
) -> tuple[ResourceType, str]:
    from lakelog.cli.commands.stored_configs import change_stored
    from lakelog.metadata import records

    named = of.named()
    if named is None or dry_run:
        what = "--dry-run needs a running broker" if dry_run else "no resource given"
        hint = "" if dry_run else "specify --broker NODE, --all-brokers, --topic or --group"
        raise CliError("LL0902", f"{what} with --offline", hint)
    change_stored(folder, records.ResourceType(int(named[0])), named[1], values)
    return named


def _described(admin: Admin, of: Of, keys: Sequence[str]) -> Iterable[ConfigEntry]:
    """Return the given settings in order, or all by name. Raises `CliError` for an unknown key."""
    kind, name = of.resource(admin)
    try:
        entries = admin.configs.describe(kind, name, documentation=True, synonyms=True)
    except KafkaError as error:
        raise refusal(admin, kind, name, (), error) from error
    check_known(kind, name, keys, entries)
    return [entries[key] for key in keys] if keys else entries.values()


def listing(entries: Iterable[ConfigEntry]) -> Listing:
    """Return one row per key."""
    rows = [_facts(entry) for entry in entries]
    return Listing(rows, _COLUMNS, empty="all settings have their default; use --all to show them")


def altered(
    kind: ResourceType, name: str, changes: Mapping[str, str | None], *, dry_run: bool
) -> Document:
    """Return the changes as data; a value of null stands for a reset to the default."""
    rows = [{"name": key, "value": shown_value(key, value)} for key, value in changes.items()]
    facts = {"resource_type": kind.name.lower(), "resource": name or None, "executed": not dry_run}
    return Document({**facts, "changes": rows}, facts, [Listing(rows)])


def document(entry: ConfigEntry) -> Document:
    """Return one key with all sources of its value, the effective one first."""
    chain = [
        {
            "in_force": number == 0,
            "value": _shown(item.name, item.value, entry),
            "source": source_name(item.source.name),
            "key": item.name,
        }
        for number, item in enumerate(entry.synonyms)
    ]
    facts = {**_facts(entry), "documentation": entry.documentation or None}
    return Document({**facts, "chain": chain}, facts, [Listing(chain)])


def _facts(entry: ConfigEntry) -> Mapping[str, Any]:
    return {
        "name": entry.name,
        "value": _shown(entry.name, entry.value, entry),
        "source": source_name(entry.source.name),
        "type": entry.type.name.lower() if entry.type is not None else None,
        "is_read_only": entry.is_read_only,
        "is_sensitive": entry.is_sensitive,
    }


def _shown(key: str, value: str | None, entry: ConfigEntry) -> str | None:
    return "[hidden]" if entry.is_sensitive and value is None else shown_value(key, value)
