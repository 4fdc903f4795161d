"""Generates docs/api-support.md from the registry: `python -m lakelog.protocol.api_page`."""

from __future__ import annotations

import sys

from lakelog.protocol.api_notes import API_NOTES, ApiNote
from lakelog.protocol.registry import APIS

_INTRODUCTION = """\
# APIs of the Kafka protocol

The APIs that the broker supports, by key. The advertised version ranges are the complete stable
ranges of Apache Kafka 4.4. Behaviour is compared with Apache Kafka 4.3.1, the newest version that
can be run: `make conformance` sends the same invalid requests to both.

This page is generated: `python -m lakelog.protocol.api_page > docs/api-support.md`.
"""
_SUPPORTED_HEAD = "| key | API | versions | supported | not supported |"


def api_page() -> str:
    """Return the page in Markdown."""
    served = [_row(note) for note in API_NOTES if note.key in APIS]
    absent = [
        f"| {note.key} | {note.name} | {note.missing or 'not yet'} |"
        for note in API_NOTES
        if note.key not in APIS
    ]
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


def _row(note: ApiNote) -> str:
    api = APIS[note.key]
    versions = f"{api.min_version}–{api.max_version}"
    return f"| {api.key} | {api.name} | {versions} | {note.done} | {note.missing} |"


if __name__ == "__main__":
    sys.stdout.write(api_page())
