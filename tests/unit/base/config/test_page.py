from __future__ import annotations

import re
from pathlib import Path

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.config.key import ConfigKey, Effect
from lakelog.base.config.log_config import TOPIC_CONFIGS
from lakelog.base.config.page import config_page

ROOT = Path(__file__).parents[4]
SOURCE = ROOT / "src" / "lakelog"
CHECKED_BY_PARSING_ONLY = {
    *("process.roles", "listener.security.protocol.map"),
    *(
        f"group.consumer.{bound}.{time}"
        for bound in ("min", "max")
        for time in ("session.timeout.ms", "heartbeat.interval.ms", "assignment.interval.ms")
    ),
}
READ_BY_PROPERTY = {
    "node.id": "node_id",
    "broker.id": "node_id",
    "log.dirs": "data_directory",
    "log.dir": "data_directory",
    "listeners": "listeners",
    "advertised.listeners": "advertised_listeners",
}


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / "docs" / "configuration.md").read_text(encoding="utf-8")
    assert page == config_page(), "run: python -m lakelog.base.config.page > docs/configuration.md"


def test_every_key_that_is_said_to_be_honoured_is_read_somewhere() -> None:
    source = "\n".join(
        path.read_text(encoding="utf-8")
        for path in SOURCE.rglob("*.py")
        if path.relative_to(SOURCE).parts[0] != "base"
    )
    unread = [key.name for key in TOPIC_CONFIGS.values() if _is_unread_topic_key(key, source)]
    unread += [key.name for key in BROKER_CONFIGS.values() if _is_unread_broker_key(key, source)]
    assert unread == []


def _is_unread_topic_key(key: ConfigKey, source: str) -> bool:
    attribute = rf"\.{key.name.replace('.', '_')}\b"
    honoured = key.effect is Effect.HONOURED and not key.internal
    return honoured and not re.search(attribute, source) and f'"{key.name}"' not in source


def _is_unread_broker_key(key: ConfigKey, source: str) -> bool:
    of_a_topic = {name.name for topic in TOPIC_CONFIGS.values() for name in topic.synonyms}
    if key.effect is not Effect.HONOURED or key.name in of_a_topic | CHECKED_BY_PARSING_ONLY:
        return False
    if key.name in READ_BY_PROPERTY:
        return f".{READ_BY_PROPERTY[key.name]}" not in source
    return f'"{key.name}"' not in source
