from __future__ import annotations

import pytest

from lakelog.cli.failures import CliError
from lakelog.cli.feature_levels import changes, feature_listing, parse_levels
from lakelog.client.admin.features import Feature

FEATURES = {
    "current": Feature("current", 2, {1: (0, 2), 2: (0, 2)}),
    "mixed": Feature("mixed", 1, {1: (1, 3), 2: (1, 2)}),
    "new": Feature("new", 0, {1: (1, 1)}, lacking=(2,)),
    "old": Feature("old", 1, {1: (1, 4), 2: (1, 4)}),
}


def test_a_feature_is_shown_with_the_levels_of_all_brokers() -> None:
    rows = feature_listing(FEATURES.values()).rows
    assert [(row["level"], row["lowest"], row["highest"], row["note"]) for row in rows] == [
        (2, 0, 2, ""),
        (1, 1, 2, "broker 2 has an older version"),
        (0, 0, 0, "unknown to broker 2"),
        (1, 1, 4, "can be upgraded"),
    ]


def test_an_upgrade_without_a_level_is_the_highest_of_all_brokers() -> None:
    assert parse_levels(["mixed"], FEATURES, upgrade=True) == {"mixed": 2}
    assert parse_levels(["all"], FEATURES, upgrade=True) == {"mixed": 2, "old": 4}
    assert parse_levels(["old=2", "mixed=2"], FEATURES, upgrade=True) == {"old": 2, "mixed": 2}
    assert parse_levels(None, FEATURES, upgrade=False) == {}


@pytest.mark.parametrize(
    ("text", "upgrade", "said"),
    [
        ("other=1", True, "'other' is no feature"),
        ("old", False, "'old' is not FEATURE=LEVEL"),
        ("old=", True, "'old=' is not FEATURE=LEVEL"),
        ("old=-1", True, "not FEATURE=LEVEL"),
        ("old=99999", True, "not FEATURE=LEVEL"),
        ("all", False, "'all' is no feature"),
    ],
)
def test_another_text_is_an_error(text: str, upgrade: bool, said: str) -> None:
    with pytest.raises(CliError, match=said):
        parse_levels([text], FEATURES, upgrade=upgrade)


def test_only_changes_are_named() -> None:
    assert changes(FEATURES, {"current": 2, "old": 3}) == ["old from 1 to 3"]
