"""`lakelog consume`: records of a topic to standard output."""

from __future__ import annotations

from lakelog.cli.options import noun

app = noun("consume", "Read records of a topic.")
