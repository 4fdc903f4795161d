from __future__ import annotations

import pytest

from lakelog.metadata.errors import (
    BrokerIdInUse,
    MetadataCorrupt,
    MetadataFull,
    MetadataMissing,
    MetadataOffline,
    MetadataUnavailable,
    MetadataUnsupported,
    is_lasting,
)


@pytest.mark.parametrize(
    "error",
    [
        MetadataCorrupt("x"),
        MetadataMissing("x"),
        MetadataUnsupported("x"),
        MetadataOffline("x"),
        BrokerIdInUse("x"),
    ],
)
def test_a_store_that_is_not_the_same_any_more_fails_for_good(error: Exception) -> None:
    assert is_lasting(error)


@pytest.mark.parametrize("error", [MetadataUnavailable("x"), MetadataFull("x"), OSError("x")])
def test_a_store_that_cannot_be_reached_may_come_back(error: Exception) -> None:
    assert not is_lasting(error)
