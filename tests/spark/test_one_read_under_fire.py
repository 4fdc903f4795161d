"""One read over table and log while archive, retention, compaction and cleanup run.

Each job runs in a thread of its own. Every reader must see each offset once.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from lakelog.client.admin import Admin
from lakelog.client.offsets import EARLIEST
from lakelog.tables.archive.failures import PASSING
from lakelog.tables.iceberg.commits import Policy
from lakelog.tables.topic.offsets import StreamOffset
from lakelog.tables.upkeep.cleanup import clean
from lakelog.tables.upkeep.compaction import compact
from spark.archiver import Archiver
from spark.sources import BatchQuery, StreamQuery
from spark.topics import produce

pytestmark = [pytest.mark.spark]

TOPIC = "fire"
RECORDS = 3000
RECORDS_MAX = 100 * RECORDS
STEP = 60
_END_S = 600
SETTINGS = {"log.retention.check.interval.ms": "50", "log.segment.delete.delay.ms": "0"}
SMALL = {"internal.segment.bytes": "4096", "retention.bytes": "6000", "table.enable": "true"}


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("under-fire")
    with BrokerProcess(folder / "data", settings=SETTINGS) as broker:
        yield broker.bootstrap
        broker.stop()


class Fire:
    """Jobs in threads, until the topic is complete; a failure of any ends all."""

    def __init__(self) -> None:
        self.done = threading.Event()
        self.failures: list[BaseException] = []
        self._threads: list[threading.Thread] = []

    def every(self, pause_s: float, work: Callable[[], object]) -> None:
        def loop() -> None:
            try:
                while not self.done.is_set():
                    work()
                    time.sleep(pause_s)
            except BaseException as error:  # noqa: BLE001 - the test reports it
                self.failures.append(error)
                self.done.set()

        self._threads.append(threading.Thread(target=loop))
        self._threads[-1].start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join(_END_S)
            assert not thread.is_alive(), "a job does not end"
        if self.failures:
            raise self.failures[0]


class Scene:
    """One topic with a table, its jobs, and two streams that read it."""

    def __init__(self, bootstrap: str, folder: Path, done: threading.Event) -> None:
        self.bootstrap = bootstrap
        self.archiver = Archiver(bootstrap, TOPIC, folder)
        self.address = self.archiver.job.address
        self.counts = Counter[str]()
        self.streams = [StreamQuery(bootstrap, TOPIC) for _ in range(2)]
        self.seen = [Counter[str](), Counter[str]()]
        self._done = done
        self.produced = 0

    def arrive(self) -> None:
        """Produce some records, at least until each job has had work three times."""
        have_worked = all(self.counts[name] >= 3 for name in ("compact", "clean", "read_batch"))
        if have_worked and self.produced >= RECORDS:
            self._done.set()
            return
        assert self.produced < RECORDS_MAX, f"jobs without work: {self.counts}"
        numbers = range(self.produced, self.produced + STEP)
        produce(self.bootstrap, TOPIC, numbers)
        self.produced = numbers.stop

    def archive(self) -> None:
        self._job("archive", self.archiver.run)

    def compact(self) -> None:
        topic_id = self.archiver.job.topic_id
        self._job("compact", lambda: compact(self.address, TOPIC, topic_id, files_min=2).rows)

    def clean(self) -> None:
        policy = Policy(2)
        self._job("clean", lambda: clean(self.address, policy, time.time(), grace_s=0.3).files)

    def _job(self, name: str, work: Callable[[], object]) -> None:
        """Run a job that another writer may precede, as the real job repeats itself then."""
        with suppress(*PASSING):
            self.counts[name] += bool(work())

    def read_batch(self) -> None:
        query = BatchQuery(self.bootstrap, TOPIC)
        sizes = Counter[int]()
        for task in query.tasks:
            if task.value is not None:
                sizes[task.value.offsets.partition] += task.value.offsets.size
        time.sleep(0.2)  # files and segments go meanwhile
        expected = {f"v{p + 3 * at}" for p, size in sizes.items() for at in range(size)}
        assert Counter(query.run()) == Counter(expected)
        self.counts["read_batch"] += 1

    def read_stream(self, number: int) -> None:
        self.seen[number].update(self.streams[number].run())


def test_every_reader_sees_each_offset_once(bootstrap: str, tmp_path: Path) -> None:
    with Admin(bootstrap) as admin:
        admin.topics.create(TOPIC, partitions=3, configs=SMALL)
    fire = Fire()
    scene = Scene(bootstrap, tmp_path, fire.done)
    fire.every(0.02, scene.arrive)
    fire.every(0.05, scene.archive)
    fire.every(0.3, scene.compact)
    fire.every(0.3, scene.clean)
    fire.every(0.1, scene.read_batch)
    fire.every(0.1, lambda: scene.read_stream(0))
    fire.every(1.1, lambda: scene.read_stream(1))
    fire.join()

    scene.archiver.run()
    for number, stream in enumerate(scene.streams):
        scene.read_stream(number)
        assert scene.seen[number] == Counter(f"v{i}" for i in range(scene.produced))
        assert stream.offset is not None
        ends = StreamOffset.from_json(stream.offset).offsets
        assert ends == {TOPIC: dict.fromkeys(range(3), scene.produced // 3)}
    with Admin(bootstrap) as admin:
        starts = admin.list_offsets({(TOPIC, partition): EARLIEST for partition in range(3)})
    assert all(start.offset > 0 for start in starts.values()), "retention ran"
    assert scene.counts["archive"] > 5
