"""Generates docs/api-support.md from what handlers declare.

Run `python -m lakelog.server.api_page`.
"""

from __future__ import annotations

import sys
from typing import Any

from lakelog.server.absent_apis import ABSENT_APIS
from lakelog.server.routes import served_apis
from lakelog.server.served_api import ServedApi

_INTRODUCTION = """\
# APIs of the Kafka protocol

The APIs that the broker supports, by key. The advertised version ranges are the complete stable
ranges of Apache Kafka 4.4. Behaviour is compared with Apache Kafka 4.3.1, the newest version that
can be run: `make conformance` sends the same invalid requests to both.

This page is generated: `python -m lakelog.server.api_page > docs/api-support.md`.
"""
_SUPPORTED_HEAD = "| key | API | versions | supported | not supported |"


def api_page() -> str:
    """Return the page in Markdown."""
    served = [_row(each) for each in served_apis()]
    absent = [f"| {key} | {name} | {reason} |" for key, name, reason in ABSENT_APIS]
    parts = [
        _INTRODUCTION,
        "## Supported\n",
        "\n".join([_SUPPORTED_HEAD, "|---|---|---|---|---|", *served]),
        "\n## Not supported\n",
        "A request of one of these APIs closes the connection, because the broker does not "
        "advertise it. Kafka 4.0 removed the keys 4 to 7.\n",
        "\n".join(["| key | API | reason |", "|---|---|---|", *absent]),
    ]
    return "\n".join(parts) + "\n"


def _row(served: ServedApi[Any]) -> str:
    api = served.api
    versions = f"{served.served_versions.lowest}–{served.served_versions.highest}"
    return f"| {api.key} | {api.name} | {versions} | {served.done} | {served.missing} |"


if __name__ == "__main__":
    sys.stdout.write(api_page())
