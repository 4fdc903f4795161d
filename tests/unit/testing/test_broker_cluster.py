"""Arguments and settings of a test cluster before its processes run; tests/system starts them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakelog.testing.broker_cluster import _settings, cluster


def test_a_cluster_without_brokers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 broker"), cluster(brokers=0):
        pass


def test_a_string_is_no_list_of_topics() -> None:
    with pytest.raises(TypeError, match="pass a list"), cluster("orders"):
        pass


@pytest.mark.parametrize(("brokers", "factor", "minimum"), [(1, 1, 1), (2, 2, 1), (5, 3, 2)])
def test_topics_have_up_to_three_replicas(brokers: int, factor: int, minimum: int) -> None:
    found = _settings(brokers, Path("/c"))
    assert found["default.replication.factor"] == factor
    assert found["min.insync.replicas"] == minimum
    assert found["lakelog.metadata.store"] == "sqlite:/c/metadata.db"
