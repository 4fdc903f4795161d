"""Jobs of a table die at each step, without Spark: archive, dead letters, compaction, expiry.

The oracle reads the files that the table's snapshot names with plain PyArrow, and the topic with a
consumer of another library. `make kills` runs many more rounds.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

import pytest

from broker_process import LAKELOG, BrokerProcess
from lakelog.client.admin import Admin
from lakelog.client.producer import Producer
from lakelog.tables.archive.dead_letters import dead_letters_of
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.stored_files import referenced_files
from lost_tail import cut_tail
from spark.archiver import Archiver
from spark.kill_faults import TIMEOUT_S, Faults, Kill
from spark.kill_jobs import Workers, hold, work_until
from spark.kill_table import COMPACTION, EXPIRY, PHASES, TRUNCATED, KillTable
from spark.table_account import (
    Source,
    TableAccount,
    await_commits,
    commits,
    has_moved_rows,
    rows_of,
)
from spark.topics import MakeTopic, produce

pytestmark = [pytest.mark.spark]

COMMIT = ["metadata-written", "after-the-commit"]
ARCHIVE = ["letters-committed", "metadata-written", "after-the-commit"]
COMPACTION_POINTS = [
    "compaction-written",
    "compaction-noted",
    "metadata-written",
    "compaction-exchanged",
]
EXPIRY_POINTS = ["expiry-planned", "metadata-written", "file-deleted"]
PARTITIONS = 3
STEP = 30
LOST_BATCHES = 2
BATCH_BYTES = 1500
IMPOSSIBLE_MS = 2**62


@pytest.fixture
def enabled(bootstrap: str, tmp_path: Path) -> str:
    topic = f"table-kills-{tmp_path.name}"
    keys = {
        "message.timestamp.after.max.ms": str(2**63 - 1),
        "retention.ms": "-1",
        "table.enable": "true",
        "table.errors": "dead-letter",
    }
    with Admin(bootstrap) as admin:
        admin.topics.create(topic, partitions=PARTITIONS, configs=keys)
    return topic


def test_two_archives_die_and_pause_at_each_step(
    bootstrap: str,
    enabled: str,
    faults: Faults,
    tmp_path: Path,
    kill_table: KillTable,
    kills: int,
) -> None:
    folder = tmp_path / "warehouse"
    address = Archiver(bootstrap, enabled, folder).job.address
    account = TableAccount(address, bootstrap, enabled)

    def make(numbers: range) -> None:
        with Producer(bootstrap) as producer:
            for number in numbers:
                time_ms = IMPOSSIBLE_MS if number % 10 == 3 else None
                value, partition = b"v%d" % number, number % PARTITIONS
                producer.send(enabled, value, partition=partition, timestamp_ms=time_ms)

    source = Source(make)
    words = [bootstrap, enabled, str(folder), str(BATCH_BYTES)]
    with Workers("archive_worker.py", words, faults, tmp_path) as workers:

        def work() -> None:
            workers.replace_dead()
            source.produce(STEP)

        for point in islice(cycle(ARCHIVE), kills * len(ARCHIVE) or 1):
            account.begin(PHASES[point], source.made)
            happened = faults.arm(Kill(point, "self"))
            work_until(happened, f"a process reached {point}", work)
            held = hold(faults, "metadata-written", work)
            await_commits(address, 2, work)
            faults.release(held)
        workers.finish()

    if kills:
        kill_table.report(account.rows(), "Two archives without Spark")
    account.check()
    assert commits(address) > 9 * kills
    assert rows_of(dead_letters_of(address), "partition"), "there were dead letters"


def test_the_broker_loses_records_under_two_archives(
    faults: Faults, tmp_path: Path, kill_table: KillTable, kills: int
) -> None:
    topic, folder = "orders", tmp_path / "warehouse"
    with BrokerProcess(tmp_path / "data") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.topics.create(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        address = Archiver(broker.bootstrap, topic, folder).job.address
        account = TableAccount(address, broker.bootstrap, topic)
        source = Source(lambda numbers: produce(broker.bootstrap, topic, numbers))
        words = [broker.bootstrap, topic, str(folder), str(BATCH_BYTES)]
        with Workers("archive_worker.py", words, faults, tmp_path) as workers:

            def work() -> None:
                workers.replace_dead()
                source.produce(STEP)

            await_commits(address, 2, work)
            for n, point in enumerate(islice(cycle(COMMIT), kills or 2)):
                account.begin(TRUNCATED, source.made)
                held = hold(faults, point, work)
                if not n % 2:
                    # The other process archives records that are lost then.
                    work_until(account.is_complete, "all records", workers.replace_dead)
                broker.kill()
                for partition in range(PARTITIONS):
                    cut_tail(broker.data / f"{topic}-{partition}", LOST_BATCHES)
                broker.restart()
                end = faults.kill if n % 2 else faults.release
                end(held)
                await_commits(address, 2, work)
            workers.finish()
        if kills:
            kill_table.report(account.rows(), f"Two archives without Spark, {TRUNCATED}")
        account.check()
        assert has_moved_rows(address), "archived records were lost"


def test_compaction_and_expiry_die_at_each_step(
    bootstrap: str,
    make_topic: MakeTopic,
    faults: Faults,
    tmp_path: Path,
    kill_table: KillTable,
    kills: int,
) -> None:
    topic, folder = make_topic(), tmp_path / "warehouse"
    options = ["--warehouse", str(folder)]
    source = Source(lambda numbers: produce(bootstrap, topic, numbers))

    def run(*words: str) -> int:
        command = [LAKELOG, "table", *words, "-b", bootstrap]
        return subprocess.run(
            command, env=faults.environment(), stdout=subprocess.DEVNULL, timeout=TIMEOUT_S
        ).returncode

    assert run("create", topic, *options) == 0
    archiver = Archiver(bootstrap, topic, folder)
    address = archiver.job.address
    account = TableAccount(address, bootstrap, topic)
    compact: tuple[str, ...] = ("compact", topic, "--min-files", "2")
    expire: tuple[str, ...] = ("expire", topic, "--keep", "1", "--grace", "0s")
    plan = [(COMPACTION, point, compact) for point in COMPACTION_POINTS]
    plan += [(EXPIRY, point, expire) for point in EXPIRY_POINTS]
    some = [plan[2], plan[-1]]
    for phase, point, words in islice(cycle(plan), kills * len(plan)) if kills else some:
        account.begin(phase, source.made)
        for _ in range(2):
            source.produce(STEP)
            archiver.run()
        if words is expire:
            assert run(*compact) == 0, "expiry has files to remove"
        faults.arm(Kill(point, "self"))
        assert run(*words) == -9, f"the process outlived {point}"
        account.check()
    assert run(*compact) == 0
    assert run(*expire) == 0
    if kills:
        kill_table.report(account.rows(), "Compaction and expiry")
    account.check()

    for path in data_files(address):
        os.utime(path, (0, 0))
    assert run(*expire, "--orphan-age", "1h") == 0
    account.check()
    live = {path.removeprefix("file://") for path in referenced_files(address.load())}
    assert all(str(path) in live for path in data_files(address)), "orphans are removed by age"


def data_files(address: TableAddress) -> Iterator[Path]:
    location = Path(address.load().location().removeprefix("file://"))
    yield from (location / "data").glob("*.parquet")
