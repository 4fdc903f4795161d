"""Each place of the metadata has its store."""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.metadata.store.zookeeper.address import EnsembleAddress
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.posix import SystemClock
from lakelog.server import metadata_store
from lakelog.server.options import ServeOptions, StartError

ENSEMBLE = EnsembleAddress(("127.0.0.1:2181",), "/lakelog")


def _options(path: Path, place: Path | EnsembleAddress | None) -> ServeOptions:
    config, _ = BrokerConfig.from_mapping({})
    return ServeOptions(path, config, metadata=place)


@pytest.mark.parametrize(
    ("place", "kind"),
    [(None, EmbeddedStore), (Path("/x/shared.db"), EmbeddedStore), (ENSEMBLE, ZooKeeperStore)],
)
def test_each_place_has_its_store(
    tmp_path: Path, place: Path | EnsembleAddress | None, kind: type
) -> None:
    options = _options(tmp_path, place)
    store = metadata_store.metadata_store(options, SystemClock(), SeededRandom(1))
    assert isinstance(store, kind)
    assert options.is_clustered == (place is not None)


def test_a_missing_library_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_store, "find_spec", lambda name: None)
    with pytest.raises(StartError, match=r"pip install '\.\[zookeeper\]'"):
        metadata_store.metadata_store(_options(tmp_path, ENSEMBLE), SystemClock(), SeededRandom(1))
