from __future__ import annotations

import pytest

from lakelog.tables.latest.progress import LatestProgress, LatestTableError, property_name


def test_progress_survives_the_tables_property() -> None:
    progress = LatestProgress("uuid", 2, {0: 12, 11: 3}, {11: 1}, "id")
    assert LatestProgress.from_text(progress.to_text()) == progress
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
    with pytest.raises(LatestTableError, match=expected):
        LatestProgress.from_text(text)
