"""The metadata log in a real ensemble whose servers are killed, paused and restarted."""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_process import LAKELOG, BrokerError, BrokerProcess
from command_shell import PATIENT
from lakelog.cli.local_cluster.ensemble import SESSION_TIMEOUT_S, ZooKeeperEnsemble
from lakelog.metadata.errors import MetadataUnavailable
from lakelog.metadata.store.api import EntryOutcome, MetadataBatch
from lakelog.metadata.store.chain import MarkFile
from lakelog.metadata.store.zookeeper.kazoo_session import KazooSession
from lakelog.metadata.store.zookeeper.store import ZooKeeperStore
from lakelog.runtime.posix import SystemClock, SystemRandom
from waiting import eventually

pytestmark = pytest.mark.xdist_group("zookeeper")
WRITER = b"writer-aaaaaaaaa"
_LASTING_S = 20.0
"""Of a session that must survive a fault. The servers notice a paused one after 5 s."""


@pytest.fixture(scope="module")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running


def _store(
    ensemble: ZooKeeperEnsemble, folder: Path, timeout_s: float = SESSION_TIMEOUT_S
) -> tuple[ZooKeeperStore, KazooSession]:
    session = KazooSession(ensemble.servers, timeout_s)
    store = ZooKeeperStore(
        session,
        f"/system/{folder.name}",
        MarkFile(folder / "metadata.mark"),
        SystemClock(),
        SystemRandom(),
        session_timeout_s=timeout_s,
    )
    return store, session


class Writer:
    """Appends one batch after the other, and knows which are in the log."""

    def __init__(self, store: ZooKeeperStore, epoch: int) -> None:
        self._store = store
        self._epoch = epoch
        self.end = 0

    async def write(self, count: int) -> None:
        for _ in range(count):
            await self._write_next()
            self.end += 1

    async def _write_next(self) -> None:
        batch = MetadataBatch(WRITER, self.end + 1, self._epoch, b"%d" % self.end)
        while True:
            try:
                outcome = (await self._store.append(batch, self.end)).outcome
                if outcome is EntryOutcome.DONE:
                    return
                if outcome is EntryOutcome.LOST:
                    assert await self._store.position_of(WRITER, self.end + 1) == self.end
                    return
                assert outcome is EntryOutcome.UNKNOWN
            except MetadataUnavailable:
                continue


def test_killed_servers_lose_nothing(ensemble: ZooKeeperEnsemble, tmp_path: Path) -> None:
    async def scenario() -> None:
        store, _ = _store(ensemble, tmp_path, _LASTING_S)
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        writer = Writer(store, (await store.elect()).epoch)
        for number in (1, 2, 3):
            writing = asyncio.ensure_future(writer.write(100))
            await asyncio.to_thread(ensemble.kill, number)
            await writing
            await asyncio.to_thread(ensemble.start, number)
            await asyncio.to_thread(ensemble.wait_for, number)
        payloads = [entry.payload for entry in (await store.read(0)).entries]
        assert payloads == [b"%d" % index for index in range(300)]
        await store.close()
        again, _ = _store(ensemble, tmp_path, _LASTING_S)
        await again.open(create=False)
        assert len((await again.read(0)).entries) == 300
        await again.close()

    asyncio.run(asyncio.wait_for(scenario(), 240))


@pytest.mark.parametrize("number", [1, 2, 3])
def test_one_paused_server_does_not_expire_the_session(
    ensemble: ZooKeeperEnsemble, tmp_path: Path, number: int
) -> None:
    async def scenario() -> None:
        store, session = _store(ensemble, tmp_path, _LASTING_S)
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        writer, before = Writer(store, (await store.elect()).epoch), session.session_id
        ensemble.pause(number)
        paused_s = time.monotonic()
        try:
            await writer.write(20)
            await asyncio.sleep(paused_s + _LASTING_S - time.monotonic())
            await writer.write(20)
        finally:
            ensemble.resume(number)
        assert session.session_id == before
        assert await store.live_brokers() == {1: b"1" * 16}
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), 240))


def test_an_ensemble_without_a_quorum_comes_back(
    ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    async def scenario() -> None:
        store, _ = _store(ensemble, tmp_path)
        await store.open(create=True)
        await store.register_broker(1, b"1" * 16)
        writer = Writer(store, (await store.elect()).epoch)
        for number in (1, 2):
            await asyncio.to_thread(ensemble.kill, number)
        with pytest.raises(MetadataUnavailable):
            await store.controller()
        for number in (1, 2):
            await asyncio.to_thread(ensemble.start, number)
        await writer.write(20)
        assert await store.live_brokers() == {1: b"1" * 16}
        await store.close()

    asyncio.run(asyncio.wait_for(scenario(), 240))


def _lakelog(broker: BrokerProcess, *arguments: str, stdin: str = "") -> str:
    command = [LAKELOG, *PATIENT, *arguments, "--bootstrap-server", broker.bootstrap]
    done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_brokers_of_one_ensemble_are_a_cluster_that_outlives_its_controller(
    ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    metadata_url = f"zookeeper://{','.join(ensemble.servers)}/brokers/{tmp_path.name}"
    settings = {"broker.session.timeout.ms": "4000"}
    first, second = (
        BrokerProcess(
            tmp_path / f"data{number}",
            settings=settings,
            arguments=("--node-id", str(number), "--metadata", metadata_url),
        )
        for number in (1, 2)
    )
    with first, second:
        _lakelog(first, "topic", "create", "orders", "--replication-factor", "2")
        assert "orders" in _lakelog(second, "topic", "list")
        first.kill()
        eventually(lambda: "broker 2 is the controller" in second.log())
        _lakelog(second, "topic", "create", "later")
        first.start()
        assert "later" in _lakelog(first, "topic", "list")


@pytest.mark.parametrize("loss", ["wiped", "restored"])
def test_running_brokers_stop_when_their_ensemble_has_lost_entries(
    tmp_path: Path, loss: str
) -> None:
    with ZooKeeperEnsemble(tmp_path / "zookeeper") as lossy:
        metadata_url = f"zookeeper://{','.join(lossy.servers)}/lakelog"
        first, second = (
            BrokerProcess(
                tmp_path / f"data{number}",
                settings={"broker.session.timeout.ms": "4000"},
                arguments=("--node-id", str(number), "--metadata", metadata_url),
            )
            for number in (1, 2)
        )
        with first, second:
            _lakelog(first, "topic", "create", "before")
            lossy.end()
            backup = shutil.copytree(tmp_path / "zookeeper", tmp_path / "backup")
            _start_all(lossy)
            _lakelog(first, "topic", "create", "after")
            # A broker misses only the entries that it has seen.
            eventually(lambda: "after" in _lakelog(second, "topic", "list"))
            lossy.end()
            shutil.rmtree(tmp_path / "zookeeper")
            if loss == "restored":
                shutil.copytree(backup, tmp_path / "zookeeper")
            _start_all(lossy)
            for broker in (first, second):
                assert broker.wait() == 6
                log = broker.log()
                assert log.count("metadata_refused") == 1
                assert "error[LL0707]" in log
                assert "restore the newest state of the ensemble" in log
                with pytest.raises(BrokerError, match="LL0707"):
                    broker.start()


def _start_all(ensemble: ZooKeeperEnsemble) -> None:
    for number in (1, 2, 3):
        ensemble.start(number)
    for number in (1, 2, 3):
        ensemble.wait_for(number)


def test_a_broker_refuses_the_path_of_another_cluster_and_a_missing_path(
    ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    def broker(data: Path, path: str, node_id: int) -> BrokerProcess:
        metadata_url = f"zookeeper://{','.join(ensemble.servers)}/{tmp_path.name}/{path}"
        arguments = ("--node-id", str(node_id), "--metadata", metadata_url)
        return BrokerProcess(data, arguments=arguments)

    with broker(tmp_path / "data1", "one", 1) as one, broker(tmp_path / "data2", "two", 2) as two:
        _lakelog(one, "topic", "create", "orders")
        one.stop()
        two.stop()
    for path, reason in (("two", "is another log than"), ("three", "is missing in ZooKeeper")):
        with pytest.raises(BrokerError, match="LL0707") as caught:
            broker(tmp_path / "data1", path, 1).start()
        assert reason in str(caught.value)
        assert "check --metadata" in str(caught.value)


def test_a_cluster_moves_from_its_file_to_zookeeper_and_back(
    ensemble: ZooKeeperEnsemble, tmp_path: Path
) -> None:
    metadata_url = f"zookeeper://{','.join(ensemble.servers)}/{tmp_path.name}"
    first, back = tmp_path / "first.db", tmp_path / "back.db"
    brokers = {
        number: BrokerProcess(tmp_path / f"data{number}", settings={"num.partitions": "3"})
        for number in (1, 2)
    }

    def start(metadata: str) -> None:
        for number, broker in brokers.items():
            broker.arguments = ("--node-id", str(number), "--metadata", metadata)
            broker.start()

    def topic_id() -> str:
        text = _lakelog(brokers[1], "topic", "describe", "orders", "--format", "json")
        found = re.search(r'"(?:topic_)?id": ?"([^"]+)"', text)
        assert found is not None, text
        return found[1]

    def move(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [LAKELOG, "metadata", *arguments]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    try:
        start(f"sqlite:{first}")
        _lakelog(brokers[1], "topic", "create", "orders", "--config", "retention.ms=7d")
        _lakelog(brokers[1], "produce", "orders", stdin="one\ntwo\n")
        before = topic_id()
        refused = move("import", str(first), "--metadata", metadata_url)
        assert refused.returncode == 6
        assert "live brokers use the metadata (node ids: 1, 2)" in refused.stderr
        for broker in brokers.values():
            broker.stop()
        assert move("import", str(first), "--metadata", metadata_url).returncode == 0
        start(metadata_url)
        assert topic_id() == before
        _lakelog(brokers[2], "topic", "create", "later")
        for broker in brokers.values():
            broker.stop()
        with pytest.raises(BrokerError, match="LL0707"):
            start(f"sqlite:{first}")
        brokers[1].kill()
        done = move("export", str(back), "--metadata", metadata_url)
        assert done.returncode == 0, done.stderr
        start(f"sqlite:{back}")
        assert "later" in _lakelog(brokers[1], "topic", "list")
        _lakelog(brokers[1], "produce", "orders", stdin="three\n")
        found = _lakelog(brokers[2], "consume", "orders", "-e", "-f", "%v\\n")
        assert sorted(found.split()) == ["one", "three", "two"]
    finally:
        for broker in brokers.values():
            broker.kill()
