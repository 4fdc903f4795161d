"""Settings on the command line: KEY=VALUE with durations and sizes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING

from lakelog.base.config.key import ConfigError
from lakelog.base.config.quantities import human_value, plain_value
from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.cli.failures import CliError, suggestion
from lakelog.cli.render import Noted

if TYPE_CHECKING:
    from lakelog.client.admin import Admin, ResourceType

_NOT_A_SETTING = (ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG)


def parse_setting(text: str, option: str) -> tuple[str, str]:
    """Return key and value of KEY=VALUE, with the value in Kafka's form: 604800000 for 7d.

    option: the option that has the text, for errors. Raises `CliError`.
    """
    key, equals, value = text.partition("=")
    if not equals or not key.strip():
        raise CliError("LL0902", f"{option} {text!r} is not KEY=VALUE")
    try:
        return key.strip(), plain_value(key.strip(), value)
    except ConfigError as error:
        raise CliError("LL0501", str(error)) from error


def parse_settings(texts: Iterable[str], option: str) -> dict[str, str]:
    """Return the value of each key.

    Raises `CliError` for a key with two values, and like `parse_setting`.
    """
    values: dict[str, str] = {}
    for text in texts:
        key, value = parse_setting(text, option)
        if values.setdefault(key, value) != value:
            raise CliError("LL0902", f"'{key}' has two values: {values[key]} and {value}")
    return values


def parse_changes(texts: Iterable[str], option: str, unset: Iterable[str]) -> dict[str, str | None]:
    """Return the value of each key, and `None` for each key of `unset`.

    Raises `CliError` for a key that is both set and unset, and like `parse_settings`.
    """
    values, removed = parse_settings(texts, option), dict.fromkeys(unset)
    for key in values.keys() & removed.keys():
        raise CliError("LL0902", f"--unset {key} contradicts {key}={values[key]}")
    return {**values, **removed}


def shown_value(key: str, value: str | None) -> str | None:
    """Return the value with a note for tables, such as 7d; JSON has the value alone."""
    human = human_value(key, value)
    return value if value is None or human is None else Noted(value, human)


def source_name(name: str) -> str:
    """Return the displayed name: `static-broker` is the broker's file and command line."""
    return name.lower().replace("_", "-")


def change_settings(
    admin: Admin,
    kind: ResourceType,
    name: str,
    changes: Mapping[str, str | None],
    *,
    dry_run: bool = False,
) -> None:
    """Set each key to its value; `None` resets it to its default.

    Brokers accept the reset of an unknown key, so this function checks those keys first. Raises
    `CliError` for an unknown key, and `refusal` for a change that the broker rejects.
    """
    unset = [key for key, value in changes.items() if value is None]
    try:
        if unset:
            check_known(kind, name, unset, _known_keys(admin, kind, name))
        admin.configs.alter(kind, name, changes, validate_only=dry_run)
    except KafkaError as error:
        raise refusal(admin, kind, name, changes, error) from error


def check_known(kind: ResourceType, name: str, keys: Iterable[str], valid: Collection[str]) -> None:
    """Raise `CliError` if one of `keys` is not `valid`."""
    owner = "" if kind.name == "BROKER" else f"--{kind.name.lower()} {name} "
    for key in keys:
        if key not in valid:
            raise CliError(
                "LL0501",
                f"{whose(kind, name)} has no setting '{key}'",
                _owner_of(key, kind)
                or suggestion(key, valid)
                or f"use lakelog config get {owner}--all to list the settings",
            )


def _owner_of(key: str, kind: ResourceType) -> str:
    """Return the hint for a key of another kind of resource, or an empty text."""
    from lakelog.base.config.keys.groups import GROUP_CONFIGS
    from lakelog.base.config.keys.topics import TOPIC_CONFIGS

    if key in TOPIC_CONFIGS and kind.name != "TOPIC":
        synonyms = TOPIC_CONFIGS[key].synonyms if kind.name == "BROKER" else ()
        of_all = "".join(f", or {synonym.name} for all topics" for synonym in synonyms[:1])
        return f"{key} is a setting of topics: use --topic NAME{of_all}"
    if key in GROUP_CONFIGS and kind.name != "GROUP":
        return f"{key} is a setting of groups: use --group NAME"
    return ""


def refusal(
    admin: Admin, kind: ResourceType, name: str, keys: Iterable[str], error: KafkaError
) -> Exception:
    """Return the error to raise for one of the broker, with a hint for a key that it lacks."""
    if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        admin.topics.describe(name)  # raises an error with the most similar topic
    if error.code not in _NOT_A_SETTING:
        return error
    valid = _known_keys(admin, kind, name)
    unknown = [key for key in keys if key not in valid]
    hint = _owner_of(unknown[0], kind) or suggestion(unknown[0], valid) if unknown else ""
    return CliError("LL0501", error.message, hint)


def whose(kind: ResourceType, name: str) -> str:
    """Return the name of the owner of settings for messages."""
    return f"{kind.name.lower()} '{name}'" if name else "all brokers"


def _known_keys(admin: Admin, kind: ResourceType, name: str) -> Collection[str]:
    """Return all keys of a resource; all brokers have the same keys."""
    described = name or str(min(admin.describe_cluster().brokers))
    return admin.configs.describe(kind, described).keys()
