"""Generates docs/configuration.md from the tables: `python -m lakelog.base.config.page`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from lakelog.base.config.broker_config import BROKER_CONFIGS, IGNORED_PREFIXES
from lakelog.base.config.key import ConfigKey, Effect
from lakelog.base.config.keys.groups import GROUP_CONFIGS
from lakelog.base.config.log_config import TOPIC_CONFIGS

_INTRODUCTION = """\
# Configuration

Keys, types and defaults are Apache Kafka's, so you can use an existing `server.properties`. This
page lists every topic key and every broker key of Kafka 4: honoured, refused, or accepted without
effect. Keys that begin with `lakelog.` are lakelog's own. `lakelog config explain KEY` shows the
value of a key and its source.

Set broker keys with `--properties FILE` and `--set key=value`. The column "change" shows which of
them you can alter while the broker runs, with `kafka-configs.sh --alter` or any admin client. Set
topic keys when you create a topic, or later; the broker key in the last column is the default.

## Which value is in force

In descending order of precedence:

1. a value altered for this broker while it runs, then one altered for all brokers;
2. `--set`, and after it `--properties`;
3. the default.

The broker stores an altered value, which survives a restart. A dynamic key in `--set` at a start
overrides values that were stored before, with a warning for each (`stored_setting_overruled`), but
not values that are altered later. `--properties` has no such precedence.

```console
$ lakelog config get --offline DATA_FOLDER               # the stored values of a stopped broker
$ lakelog config set --offline DATA_FOLDER --broker 1 --unset max.connections
```

The second command repairs a broker that does not start, or that no client can reach, because of a
stored value. Both commands fail while a broker uses the folder.

As in Apache Kafka, a running broker can at most double or halve its numbers of threads
(`log.cleaner.threads`, `num.io.threads` and others) in one change, and `max.connections`,
`max.connection.creation.rate` and `log.cleaner.threads` cannot become 0.

A broker does not start with a value of the wrong type or out of bounds; the error states the
allowed values. It ignores an unknown key with a warning that suggests the most similar known key.

This page is generated: `python -m lakelog.base.config.page > docs/configuration.md`.
"""


def config_page() -> str:
    """Return the page in Markdown."""
    topic = sorted(TOPIC_CONFIGS.values(), key=lambda key: key.name)
    broker = sorted(BROKER_CONFIGS.values(), key=lambda key: key.name)
    parts = [
        _INTRODUCTION,
        "## Topic keys\n",
        _topic_table(_of(topic, Effect.HONOURED)),
        "## Broker keys\n",
        _broker_table(_of(broker, Effect.HONOURED)),
        "## Group keys\n",
        "Set these for a consumer group (resource type GROUP, `kafka-configs.sh --group`).\n",
        _topic_table(sorted(GROUP_CONFIGS.values(), key=lambda key: key.name)),
        "## Refused\n",
        "Only the default values of these keys are accepted. To ignore another value would leave a "
        "cluster less safe than its operator expects, or its data in another place.\n",
        _reason_table(_of([*topic, *broker], Effect.REFUSED)),
        "## Accepted without effect\n",
        "The broker checks the types of these values, and logs a warning for a value that differs "
        "from the default.\n",
        _reason_list(_of([*topic, *broker], Effect.NONE)),
        "Keys with one of these prefixes are accepted, too:\n",
        _prefix_table(IGNORED_PREFIXES),
    ]
    return "\n".join(parts)


def _of(keys: Iterable[ConfigKey], effect: Effect) -> list[ConfigKey]:
    return [key for key in keys if key.effect is effect]


def _topic_table(keys: list[ConfigKey]) -> str:
    rows = ["| key | default | allowed | meaning | broker key |", "|---|---|---|---|---|"]
    for key in keys:
        synonyms = ", ".join(f"`{synonym.name}`" for synonym in key.synonyms)
        rows.append(_row(f"`{key.name}`", _default(key), key.allowed, key.doc, synonyms))
    return "\n".join(rows) + "\n"


def _broker_table(keys: list[ConfigKey]) -> str:
    rows = ["| key | default | allowed | meaning | change |", "|---|---|---|---|---|"]
    for key in keys:
        mode = key.update_mode.value
        rows.append(_row(f"`{key.name}`", _default(key), key.allowed, key.doc, mode))
    return "\n".join(rows) + "\n"


def _reason_table(keys: list[ConfigKey]) -> str:
    rows = ["| key | default | why |", "|---|---|---|"]
    rows += [_row(f"`{key.name}`", _default(key), key.reason) for key in keys]
    return "\n".join(rows) + "\n"


def _reason_list(keys: list[ConfigKey]) -> str:
    reasons: dict[str, list[str]] = {}
    for key in keys:
        names = reasons.setdefault(key.reason, [])
        if f"`{key.name}`" not in names:
            names.append(f"`{key.name}`")
    return (
        "\n".join(f"- {reason}: {', '.join(reasons[reason])}" for reason in sorted(reasons)) + "\n"
    )


def _prefix_table(prefixes: Mapping[str, str]) -> str:
    return "\n".join(f"- `{prefix}`: {reason}" for prefix, reason in prefixes.items()) + "\n"


def _default(key: ConfigKey) -> str:
    return "" if not key.default else f"`{key.default}`"


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    sys.stdout.write(config_page())
