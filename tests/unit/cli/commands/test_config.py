from __future__ import annotations

from lakelog.base.config.key import ConfigType
from lakelog.cli.commands.config import document, listing
from lakelog.client.admin.configs import ConfigEntry, ConfigSource, ConfigSynonym

RETENTION = ConfigEntry(
    "retention.ms",
    "9000",
    ConfigSource.TOPIC,
    is_read_only=False,
    is_sensitive=False,
    documentation="How long.",
    type=ConfigType.LONG,
    synonyms=(
        ConfigSynonym("retention.ms", "9000", ConfigSource.TOPIC),
        ConfigSynonym("log.retention.hours", "24", ConfigSource.STATIC_BROKER),
    ),
)
SECRET = ConfigEntry(
    "ssl.key.password", None, ConfigSource.STATIC_BROKER, is_read_only=False, is_sensitive=True
)


def test_the_chain_begins_with_the_value_in_force() -> None:
    shown = document(RETENTION)
    assert shown.data["source"] == "topic"
    assert [
        (row["in_force"], row["key"], row["value"], row["source"]) for row in shown.data["chain"]
    ] == [
        (True, "retention.ms", "9000", "topic"),
        (False, "log.retention.hours", "24", "static-broker"),
    ]


def test_a_secret_is_hidden_and_every_key_is_there() -> None:
    first, second = listing([RETENTION, SECRET]).rows
    assert first.keys() == second.keys()
    assert (second["value"], second["type"]) == ("[hidden]", None)
