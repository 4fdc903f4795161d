from __future__ import annotations

import pytest

from lakelog.tables.compacted.progress import CompactedProgress, CompactedTableError, property_name


def test_progress_survives_the_tables_property() -> None:
    progress = CompactedProgress("uuid", 2, {0: 12, 11: 3}, {11: 1}, "id")
    assert CompactedProgress.from_text(progress.to_text()) == progress
    assert property_name("topic") == "lakelog.latest.topic"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "--rebuild"),
        ("[]", "--rebuild"),
        ('{"version": 1}', "--rebuild"),
        ('{"version": 2}', "upgrade lakelog"),
    ],
)
def test_text_of_others_is_named(text: str, expected: str) -> None:
    with pytest.raises(CompactedTableError, match=expected):
        CompactedProgress.from_text(text)
