"""What a topic may be called (`org.apache.kafka.common.internals.Topic`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import metric_name

_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raises INVALID_TOPIC_EXCEPTION."""
    problem = None
    if not name:
        problem = "a topic needs a name"
    elif name in (".", ".."):
        problem = "a topic cannot be called '.' or '..'"
    elif len(name) > _LENGTH_MAX:
        problem = f"a topic name has at most {_LENGTH_MAX} characters, not {len(name)}"
    elif not _LEGAL.fullmatch(name):
        problem = f"topic name {name!r} may have only letters, digits, '.', '_' and '-'"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def check_collision(name: str, metric_names: Mapping[str, str]) -> None:
    """Raises INVALID_TOPIC_EXCEPTION if metrics could not tell `name` from another topic."""
    other = metric_names.get(metric_name(name), name)
    if other != name:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} differs from {other} only in '.' and '_'",
        )
