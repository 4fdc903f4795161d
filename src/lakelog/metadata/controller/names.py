"""The rules for names of topics (`org.apache.kafka.common.internals.Topic`)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lakelog.base.errors import ErrorCode, KafkaError
from lakelog.metadata.image import metric_name

_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)


def check_topic_name(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a name that no topic can have."""
    problem = None
    if not name:
        problem = "the topic name is empty"
    elif name in (".", ".."):
        problem = "the topic name cannot be '.' or '..'"
    elif len(name) > _LENGTH_MAX:
        problem = f"the topic name has {len(name)} characters; at most {_LENGTH_MAX} are allowed"
    elif not _LEGAL.fullmatch(name):
        problem = f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed"
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)


def check_collision(name: str, metric_names: Mapping[str, str]) -> None:
    """Raise INVALID_TOPIC_EXCEPTION if `name` has the same name in metrics as another topic."""
    other = metric_names.get(metric_name(name), name)
    if other != name:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name} differs from {other} only in '.' and '_'",
        )
