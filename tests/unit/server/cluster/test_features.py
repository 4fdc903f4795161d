from __future__ import annotations

from lakelog.server.cluster.features import finalized_features, supported_features


def test_clients_before_version_4_are_not_sent_features_whose_lowest_level_is_0() -> None:
    assert supported_features(3) == []
    assert {each.name for each in supported_features(4)} == {"group.version", "transaction.version"}


def test_features_are_finalized_at_their_highest_level() -> None:
    highest = {each.name: each.max_version for each in supported_features(4)}
    assert {each.name: each.max_version_level for each in finalized_features()} == highest
