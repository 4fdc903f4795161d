"""Each place of the metadata has its store.

Settings of a secured ensemble, and settings that do not fit.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from doubles.randomness import SeededRandom
from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.metadata.store.embedded import EmbeddedStore
from lakelog.metadata.store.zookeeper.address import EnsembleAddress, Security, Tls
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.posix import SystemClock
from lakelog.server import metadata_store
from lakelog.server.metadata_store import security_of
from lakelog.server.options import ServeOptions, StartError

ENSEMBLE = EnsembleAddress(("127.0.0.1:2181",), "/lakelog")


def _options(path: Path, location: Path | EnsembleAddress | None) -> ServeOptions:
    config, _ = BrokerConfig.from_mapping({})
    return ServeOptions(path, config, metadata=location)


@pytest.mark.parametrize(
    ("location", "kind"),
    [(None, EmbeddedStore), (Path("/x/shared.db"), EmbeddedStore), (ENSEMBLE, ZooKeeperStore)],
)
def test_each_place_has_its_store(
    tmp_path: Path, location: Path | EnsembleAddress | None, kind: type
) -> None:
    options = _options(tmp_path, location)
    store = metadata_store.metadata_store(options, SystemClock(), SeededRandom(1))
    assert isinstance(store, kind)
    assert options.is_clustered == (location is not None)


def test_a_missing_library_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(metadata_store, "find_spec", lambda name: None)
    with pytest.raises(StartError, match=r"pip install '\.\[zookeeper\]'"):
        metadata_store.metadata_store(_options(tmp_path, ENSEMBLE), SystemClock(), SeededRandom(1))


def _digest_file(path: Path, text: str, mode: int = 0o600) -> str:
    file = path / "digest"
    file.write_text(text)
    file.chmod(mode)
    return str(file)


def test_without_settings_there_is_no_security() -> None:
    assert security_of(BrokerConfig({})) == Security()


def test_digest_acl_and_tls_come_from_the_settings(tmp_path: Path) -> None:
    config = {
        "lakelog.zookeeper.digest.file": _digest_file(tmp_path, "lakelog:a:secret\n"),
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.endpoint.identification.algorithm": "",
    }
    expected = Security("lakelog:a:secret", Tls(checks_host=False), restricts=True)
    assert security_of(BrokerConfig(config)) == expected


@pytest.mark.parametrize("text", ["", "user", ":password", "user:", "user:password\nuser:other"])
def test_a_file_without_one_user_and_password_is_rejected(text: str, tmp_path: Path) -> None:
    config = BrokerConfig({"lakelog.zookeeper.digest.file": _digest_file(tmp_path, text)})
    with pytest.raises(ConfigError, match="USER:PASSWORD"):
        security_of(config)


def test_a_password_that_other_users_can_read_is_rejected(tmp_path: Path) -> None:
    path = _digest_file(tmp_path, "user:password", 0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        security_of(BrokerConfig({"lakelog.zookeeper.digest.file": path}))


@pytest.mark.parametrize(
    ("config", "text"),
    [
        ({"zookeeper.set.acl": "true"}, "needs lakelog.zookeeper.digest.file"),
        ({"zookeeper.set.acl": "true", "zookeeper.ssl.client.enable": "true"}, "needs"),
        ({"zookeeper.ssl.truststore.location": "ca.pem"}, "needs zookeeper.ssl.client.enable=true"),
        ({"zookeeper.ssl.keystore.location": "key.pem"}, "needs zookeeper.ssl.client.enable=true"),
        (
            {"zookeeper.ssl.client.enable": "true", "zookeeper.ssl.truststore.location": "/none"},
            "/none cannot be used",
        ),
        ({"lakelog.zookeeper.digest.file": "/none"}, "cannot be read: No such file"),
    ],
)
def test_settings_that_do_not_fit_are_rejected(config: dict[str, str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        security_of(BrokerConfig(config))


@pytest.mark.parametrize("key", ["keystore", "truststore"])
def test_only_pem_files_are_supported(key: str) -> None:
    with pytest.raises(ConfigError, match="PEM"):
        BrokerConfig({f"zookeeper.ssl.{key}.type": "JKS"})
