"""The ZooKeeper store on a real ensemble with digest, ACLs and TLS, and its refusals."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import CREATOR_ALL_ACL

import secured_ensemble
from broker_process import LAKELOG, BrokerProcess
from lakelog.metadata.errors import MetadataDenied, MetadataError, MetadataUnavailable
from lakelog.metadata.store.api import EntryOutcome, MetadataBatch
from lakelog.metadata.store.chain import MemoryMarks
from lakelog.metadata.store.zookeeper.address import Security, Tls
from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.posix import SystemClock, SystemRandom

pytestmark = [pytest.mark.xdist_group("zookeeper"), pytest.mark.java]
_WRITER = b"writer-aaaaaaaaa"
_TIMEOUT_S = 4.0


class Ensemble:
    def __init__(self, plain: tuple[str, ...], certificates: secured_ensemble.Certificates) -> None:
        host = secured_ensemble.SECURE_HOST
        self.plain = plain
        self.secure = tuple(f"{host}:{server.rpartition(':')[2]}" for server in plain)
        self.certificates = certificates
        self.client = str(certificates.issue("client", "DNS:client"))
        self.tls = Tls(str(certificates.ca), self.client)


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    folder = tmp_path_factory.mktemp("secured")
    with secured_ensemble.secured(folder) as (running, certificates):
        yield Ensemble(running.servers, certificates)


def _store(
    servers: tuple[str, ...], path: Path, security: Security, timeout_s: float = _TIMEOUT_S
) -> ZooKeeperStore:
    return ZooKeeperStore(
        KazooSession(servers, timeout_s, security),
        f"/{path.name}",
        MemoryMarks(),
        SystemClock(),
        SystemRandom(),
        session_timeout_s=timeout_s,
    )


async def _use(store: ZooKeeperStore, serial: int) -> None:
    """Open the store, append an entry, and close it."""
    await store.open(create=True)
    try:
        await store.register_broker(1, b"%d" % serial * 16)
        epoch = (await store.elect()).epoch
        end = len((await store.read(0)).entries)
        outcome = await store.append(MetadataBatch(_WRITER, serial, epoch, b"x"), end)
        assert outcome.outcome is EntryOutcome.DONE
    finally:
        await store.close()


def _error(store: ZooKeeperStore) -> MetadataError:
    with pytest.raises(MetadataError) as caught:
        asyncio.run(_use(store, 1))
    return caught.value


def test_only_the_same_digest_has_access_to_the_nodes(ensemble: Ensemble, tmp_path: Path) -> None:
    servers = ensemble.plain
    asyncio.run(_use(_store(servers, tmp_path, Security("lakelog:right", restricts=True)), 1))
    asyncio.run(_use(_store(servers, tmp_path, Security("lakelog:right", restricts=True)), 2))
    for security in (Security(), Security("lakelog:wrong"), Security("other:right")):
        error = _error(_store(servers, tmp_path, security))
        assert isinstance(error, MetadataDenied), security
        assert "lakelog.zookeeper.digest.file" in str(error)
    other = KazooClient(",".join(servers))
    other.start()
    try:
        with pytest.raises(NoAuthError):
            other.get(f"/{tmp_path.name}/end")
        with pytest.raises(NoAuthError):
            other.delete(f"/{tmp_path.name}/log")
    finally:
        other.stop()
        other.close()


def test_brokers_and_commands_use_the_settings_of_a_secured_ensemble(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    """As docs/cluster.md shows them: digest, ACLs and TLS together."""
    digest, properties = tmp_path / "digest", tmp_path / "server.properties"
    digest.touch(0o600)
    digest.write_text("lakelog:right\n")
    metadata = f"zookeeper://{','.join(ensemble.secure)}/{tmp_path.name}"
    settings = {
        "lakelog.zookeeper.digest.file": str(digest),
        "zookeeper.set.acl": "true",
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.truststore.location": str(ensemble.certificates.ca),
        "zookeeper.ssl.keystore.location": ensemble.client,
    }
    properties.write_text("\n".join(f"{key}={value}" for key, value in settings.items()))

    def lakelog(*words: str) -> subprocess.CompletedProcess[str]:
        command = [LAKELOG, *words]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def export(store: str, *options: str) -> subprocess.CompletedProcess[str]:
        file = tmp_path / f"{len(list(tmp_path.iterdir()))}.db"
        return lakelog("metadata", "export", str(file), "--metadata", store, *options)

    arguments = ("--metadata", metadata, "--properties", str(properties))
    with BrokerProcess(tmp_path / "data", arguments=arguments) as broker:
        created = lakelog("topic", "create", "orders", "-b", broker.bootstrap)
        assert created.returncode == 0, created.stderr
        broker.stop()
    done = export(metadata, "--properties", str(properties))
    assert done.returncode == 0, done.stderr
    assert "1 topic, 1 broker" in done.stderr
    plain = export(f"zookeeper://{','.join(ensemble.plain)}/{tmp_path.name}")
    assert plain.returncode == 6
    assert "error[LL0707]" in plain.stderr
    assert "--properties" in plain.stderr
    with_tls = export(metadata)
    assert with_tls.returncode != 0
    assert "zookeeper.ssl.client.enable" in with_tls.stderr


def test_a_wrong_password_of_a_running_broker_ends_its_calls(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    """Its nodes got an ACL that it does not fit."""

    async def scenario() -> None:
        store = _store(ensemble.plain, tmp_path, Security())
        await store.open(create=True)
        owner = KazooClient(",".join(ensemble.plain), auth_data=[("digest", "a:b")])
        await asyncio.to_thread(owner.start)
        for name in ("controller", "end", "barrier"):
            await asyncio.to_thread(owner.set_acls, f"/{tmp_path.name}/{name}", CREATOR_ALL_ACL)
        with pytest.raises(MetadataDenied):
            await store.controller()
        await asyncio.to_thread(owner.stop)
        owner.close()
        await store.close()

    asyncio.run(scenario())


def test_a_store_works_over_tls_with_the_acl_of_its_certificate(
    ensemble: Ensemble, tmp_path: Path
) -> None:
    security = Security(tls=ensemble.tls, restricts=True)
    asyncio.run(_use(_store(ensemble.secure, tmp_path, security), 1))
    asyncio.run(_use(_store(ensemble.secure, tmp_path, security), 2))
    assert isinstance(_error(_store(ensemble.plain, tmp_path, Security())), MetadataDenied)


def test_each_mistake_of_tls_has_its_reason(ensemble: Ensemble, tmp_path: Path) -> None:
    tls = ensemble.tls
    other = secured_ensemble.Certificates(tmp_path / "other")
    stranger = str(other.issue("stranger", "DNS:stranger"))
    port = ensemble.secure[0].rpartition(":")[2]
    for servers, used, text in (
        (ensemble.secure, tls._replace(ca_file=str(other.ca)), "truststore.location"),
        (ensemble.secure, tls._replace(ca_file=None), "truststore.location"),
        (ensemble.secure, tls._replace(certificate_file=None), "keystore.location"),
        (ensemble.secure, tls._replace(certificate_file=stranger), "keystore.location"),
        ((f"127.0.0.3:{port}",), tls, "127.0.0.3"),
        (ensemble.plain, tls, "secureClientPort"),
        (ensemble.secure, None, "zookeeper.ssl.client.enable"),
    ):
        error = _error(_store(servers, tmp_path, Security(tls=used), timeout_s=2.0))
        assert isinstance(error, MetadataUnavailable)
        assert text in str(error), (used, str(error))


def test_a_certificate_of_another_host_is_accepted_only_without_a_check(
    tmp_path_factory: pytest.TempPathFactory, tmp_path: Path
) -> None:
    folder = tmp_path_factory.mktemp("renamed")
    certificates = secured_ensemble.Certificates(folder / "certificates")
    certificates.issue("server", "DNS:elsewhere")
    with secured_ensemble.serving(folder) as running:
        found = Ensemble(running.servers, certificates)
        error = _error(_store(found.secure, tmp_path, Security(tls=found.tls), timeout_s=2.0))
        assert "mismatch" in str(error)
        unchecked = found.tls._replace(checks_host=False)
        asyncio.run(_use(_store(found.secure, tmp_path, Security(tls=unchecked)), 1))
