from __future__ import annotations

from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import FeatureRecord
from lakelog.protocol.commit_sets import FEATURE
from lakelog.server.cluster.features import finalized_features, supported_features


def test_clients_before_version_4_are_not_sent_features_whose_lowest_level_is_0() -> None:
    assert "transaction.version" not in {each.name for each in supported_features(3)}
    assert "transaction.version" in {each.name for each in supported_features(4)}


def test_commit_sets_are_listed_for_clients_of_any_version() -> None:
    """Clients look for the supported level before they send a commit set (ADR 8)."""
    for version in (3, 4):
        rows = {each.name: each for each in supported_features(version)}
        assert (rows[FEATURE].min_version, rows[FEATURE].max_version) == (1, 1)


def test_finalized_levels_come_from_the_image() -> None:
    image = MetadataImage().apply(FeatureRecord("transaction.version", 1))
    levels = {each.name: each.max_version_level for each in finalized_features(image)}
    assert levels == {"group.version": 1, "lakelog.metadata.version": 1, "transaction.version": 1}
    image = image.apply(FeatureRecord("transaction.version", 0))
    assert "transaction.version" not in {each.name for each in finalized_features(image)}
