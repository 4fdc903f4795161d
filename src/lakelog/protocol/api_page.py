"""docs/api-support.md, from the registry: `python -m lakelog.protocol.api_page`."""

from __future__ import annotations

import sys

from lakelog.protocol.api_notes import API_NOTES, ApiNote
from lakelog.protocol.registry import APIS

_INTRODUCTION = """\
# APIs of the Kafka protocol

What the broker serves, by API key. Version ranges are the stable ones of Apache Kafka 4.4, whole;
the broker advertises what this page says. Behaviour is compared with Apache Kafka 4.3.1, the
newest that can be run: `make conformance` sends the same bad requests to both.

This page is generated: `python -m lakelog.protocol.api_page > docs/api-support.md`.
"""


def api_page() -> str:
    """Markdown."""
    served = [_row(note) for note in API_NOTES if note.key in APIS]
    absent = [
        f"| {note.key} | {note.name} | {note.missing or 'not yet'} |"
        for note in API_NOTES
        if note.key not in APIS
    ]
    parts = [
        _INTRODUCTION,
        "## Served\n",
        "\n".join(["| key | API | versions | done | not done |", "|---|---|---|---|---|", *served]),
        "\n## Not served\n",
        "A request for one of these closes the connection, as with any broker that does not "
        "advertise it. Keys 4 to 7 have no versions since Kafka 4.0.\n",
        "\n".join(["| key | API | why |", "|---|---|---|", *absent]),
    ]
    return "\n".join(parts) + "\n"


def _row(note: ApiNote) -> str:
    api = APIS[note.key]
    versions = f"{api.min_version}–{api.max_version}"
    return f"| {api.key} | {api.name} | {versions} | {note.done} | {note.missing} |"


if __name__ == "__main__":
    sys.stdout.write(api_page())
