"""docs/configuration.md, written from the tables: `python -m lakelog.base.config.page`."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping

from lakelog.base.config.broker_config import BROKER_CONFIGS, IGNORED_PREFIXES
from lakelog.base.config.key import ConfigKey, Effect
from lakelog.base.config.keys.consumer_groups import GROUP_CONFIGS
from lakelog.base.config.log_config import TOPIC_CONFIGS

_INTRODUCTION = """\
# Configuration

Keys, types and defaults are Apache Kafka's; a `server.properties` can be brought along. Every topic
key and every broker key of Kafka 4 is on this page: honoured, refused, or accepted without effect.
Keys that begin with `lakelog.` are lakelog's own.
`lakelog config explain KEY` says where a value comes from. Broker keys
come from `--properties FILE` and `--set key=value`, and those marked dynamic can be altered while
the broker runs (`kafka-configs.sh --alter` or any admin client). Topic keys are set when a topic is
created and altered later; a topic that does not set one has the broker key of the last column.

## Which value is in force

From the strongest to the weakest:

1. a value altered for this broker while it runs, then one altered for all brokers;
2. `--set`, and after it `--properties`;
3. the default.

An altered value is stored and outlives a restart. A dynamic key given with `--set` at a start goes
before the values stored by then: the broker warns of each (`stored_setting_overruled`), and a value
altered after that start is in force again. `--properties` has no such precedence.

```console
$ lakelog config get --offline DATA_FOLDER                     # what a stopped broker has stored
$ lakelog config set --offline DATA_FOLDER --broker 1 --unset max.connections
```

The second line repairs a broker that a stored value keeps from starting or its clients from
connecting. While a broker runs on the folder both are refused.

While a broker runs, the number of its threads (`log.cleaner.threads`, `num.io.threads` and the
like) changes by at most a factor of two at once, and `max.connections`,
`max.connection.creation.rate` and `log.cleaner.threads` cannot become 0, as in Apache Kafka.

A value of the wrong type or out of bounds refuses to start and says what is allowed. An unknown key
is named in a warning, with the nearest known one.

This page is generated: `python -m lakelog.base.config.page > docs/configuration.md`.
"""


def config_page() -> str:
    """Markdown."""
    topic = sorted(TOPIC_CONFIGS.values(), key=lambda key: key.name)
    broker = sorted(BROKER_CONFIGS.values(), key=lambda key: key.name)
    parts = [
        _INTRODUCTION,
        "## Topic keys\n",
        _topic_table(_of(topic, Effect.HONOURED)),
        "## Broker keys\n",
        _broker_table(_of(broker, Effect.HONOURED)),
        "## Group keys\n",
        "Set for a single consumer group (resource type GROUP, `kafka-configs.sh --group`).\n",
        _topic_table(sorted(GROUP_CONFIGS.values(), key=lambda key: key.name)),
        "## Refused\n",
        "Accepted only as they are by default, since ignoring them would leave a cluster less safe "
        "than its operator believes, or its data elsewhere.\n",
        _reason_table(_of([*topic, *broker], Effect.REFUSED)),
        "## Accepted without effect\n",
        "Checked for their type, and named in a warning when a broker is given another value than "
        "the default.\n",
        _reason_list(_of([*topic, *broker], Effect.NONE)),
        "Keys that begin with one of these are accepted too:\n",
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
