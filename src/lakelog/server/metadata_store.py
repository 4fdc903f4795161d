"""The metadata store of a broker: its own file, a file of this host, or a ZooKeeper ensemble.

The settings of a secured ensemble are read here.
"""

from __future__ import annotations

import stat
from importlib.util import find_spec
from pathlib import Path

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.base.config.key import ConfigError
from lakelog.metadata.store.api import MetadataStore, MovableStore
from lakelog.metadata.store.chain import MARK_FILE, MarkFile, Marks
from lakelog.metadata.store.embedded import METADATA_FILE, EmbeddedStore
from lakelog.metadata.store.zookeeper.address import EnsembleAddress, Security, Tls
from lakelog.runtime.api import Clock, Random
from lakelog.server.options import ServeOptions, StartError

_DIGEST = "lakelog.zookeeper.digest.file"
_ACL = "zookeeper.set.acl"
_TLS = "zookeeper.ssl.client.enable"
_CA = "zookeeper.ssl.truststore.location"
_CERTIFICATE = "zookeeper.ssl.keystore.location"
_OF_OTHERS = stat.S_IRWXO
_DIGEST_CHARS_MAX = 4096


def security_of(config: BrokerConfig) -> Security:
    """Return the broker's means. Raises `ConfigError` for settings or files that do not fit."""
    tls = _tls(config)
    digest = _digest(config)
    restricts = config.get_bool(_ACL)
    if restricts and digest is None and (tls is None or tls.certificate_file is None):
        raise ConfigError(_ACL, "true", f"needs {_DIGEST} or a client certificate ({_CERTIFICATE})")
    return Security(digest, tls, restricts)


def _tls(config: BrokerConfig) -> Tls | None:
    ca_file, certificate_file = _text(config, _CA), _text(config, _CERTIFICATE)
    if not config.get_bool(_TLS):
        for key, path in ((_CA, ca_file), (_CERTIFICATE, certificate_file)):
            if path is not None:
                raise ConfigError(key, path, f"needs {_TLS}=true")
        return None
    tls = Tls(
        ca_file,
        certificate_file,
        _text(config, "zookeeper.ssl.keystore.password"),
        checks_host=_text(config, "zookeeper.ssl.endpoint.identification.algorithm") is not None,
    )
    try:
        tls.context()
    except ValueError as error:
        raise ConfigError(_TLS, "true", str(error)) from None
    return tls


def _digest(config: BrokerConfig) -> str | None:
    path = _text(config, _DIGEST)
    if path is None:
        return None
    try:
        with Path(path).open(encoding="utf-8") as file:
            mode = stat.S_IMODE(Path(path).stat().st_mode)
            digest = file.read(_DIGEST_CHARS_MAX).rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(_DIGEST, path, f"cannot be read: {reason}") from None
    if mode & _OF_OTHERS:
        raise ConfigError(_DIGEST, path, f"other users have access to it; run: chmod 600 {path}")
    user, colon, password = digest.partition(":")
    if not (user and colon and password) or "\n" in digest:
        raise ConfigError(_DIGEST, path, "has to contain one line, USER:PASSWORD")
    return digest


def _text(config: BrokerConfig, key: str) -> str | None:
    value = config.get(key)
    assert value is None or isinstance(value, str)
    return value or None


def metadata_store(options: ServeOptions, clock: Clock, random: Random) -> MetadataStore:
    """Return the store that the options name. Raises `StartError` if its library is missing."""
    marks = MarkFile(options.data / MARK_FILE)
    timeout_s = options.config.get_int("broker.session.timeout.ms") / 1000
    if options.metadata is None:
        return EmbeddedStore(options.data / METADATA_FILE, clock, marks=marks)
    return store_at(options.metadata, marks, clock, random, timeout_s)


def store_at(
    location: Path | EnsembleAddress, marks: Marks, clock: Clock, random: Random, timeout_s: float
) -> MovableStore:
    """Return the store that brokers share. Raises `StartError` if its library is missing."""
    if isinstance(location, Path):
        return EmbeddedStore(location, clock, shared=True, session_timeout_s=timeout_s, marks=marks)
    return _zookeeper(location, marks, clock, random, timeout_s)


def _zookeeper(
    ensemble: EnsembleAddress, marks: Marks, clock: Clock, random: Random, timeout_s: float
) -> MovableStore:
    if find_spec("kazoo") is None:
        raise StartError("kazoo is not installed; run: pip install '.[zookeeper]'")
    # Imported here: kazoo would delay the start of every other broker.
    from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession
    from lakelog.metadata.store.zookeeper.store import ZooKeeperStore

    try:
        session = KazooSession(ensemble.servers, timeout_s, ensemble.security)
    except ValueError as error:
        raise StartError(str(error)) from error
    return ZooKeeperStore(
        session,
        ensemble.root,
        marks,
        clock,
        random,
        session_timeout_s=timeout_s,
    )
