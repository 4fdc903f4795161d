"""Many kills of two runs of `lakelog table sync --follow` of one topic at once, with Spark.

Drivers, their Java and their workers die, and so do compaction and expiry beside them; an old run
is stopped while the other one commits, and continues; the broker loses records that may be archived
already. Then each record of the topic must be in the table once, for PyArrow and a consumer of
another library. `--sink-kills` is the number of kills at each point.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from itertools import cycle, islice
from pathlib import Path

import pytest

from broker_process import LAKELOG, BrokerProcess
from lakelog.client.admin import Admin
from lakelog.tables.iceberg.address import TableAddress
from lakelog.tables.iceberg.warehouse import open_warehouse
from lost_tail import cut_tail
from spark.kill_faults import TIMEOUT_S, Faults, Kill
from spark.kill_jobs import Job, Jobs, work_until
from spark.kill_table import COMPACTION, EXPIRY, PHASES, STOPPED, TRUNCATED, KillTable
from spark.table_account import Source, TableAccount, await_commits, commits, has_moved_rows
from spark.topics import MakeTopic, produce

pytestmark = [pytest.mark.spark, pytest.mark.kills]

POINTS = ["planning", "file-written", "metadata-written", "after-the-commit"]
VICTIMS = ["self", "driver", "self", "jvm", "self"]
UPKEEP = {
    COMPACTION: (
        ("compact", "--min-files", "2"),
        ["compaction-written", "compaction-noted", "metadata-written", "compaction-exchanged"],
    ),
    EXPIRY: (
        ("expire", "--keep", "1", "--grace", "0s"),
        ["expiry-planned", "metadata-written", "file-deleted"],
    ),
}
COMMITS_PER_KILL = 3
MANY_COMMITS, KILLS_OF_MANY = 100, 12
CONFLICT = "another job archives this topic at the same time"
STEP = 30
LOST_BATCHES = 2
PARTITIONS = 3


class Scene:
    """Two runs that follow one topic, and its table."""

    def __init__(
        self, bootstrap: str, topic: str, faults: Faults, folder: Path, *words: str
    ) -> None:
        self.bootstrap, self.topic, self.faults = bootstrap, topic, faults
        warehouse = str(folder / "warehouse")
        arguments = [topic, "--warehouse", warehouse, "-b", bootstrap]
        subprocess.run([LAKELOG, "table", "create", *arguments], check=True, capture_output=True)
        self.address = TableAddress(open_warehouse(warehouse).catalog, ("lakelog", topic))
        self.account = TableAccount(self.address, bootstrap, topic)
        self.source = Source(lambda numbers: produce(bootstrap, topic, numbers))
        command = [LAKELOG, "table", "sync", *arguments, "--follow", "--every", "300ms", *words]
        self.jobs = Jobs(command, faults, folder)

    def work(self) -> None:
        self.jobs.replace_dead()
        self.source.produce(STEP)

    def until(self, condition: Callable[[], object], what: str) -> None:
        work_until(condition, what, self.work)

    def await_commits(self, count: int) -> int:
        """Produce until the runs have made so many more commits; return how many they made."""
        before = commits(self.address)
        await_commits(self.address, count, self.work)
        return commits(self.address) - before

    def die(self, phase: str, kill: Kill) -> None:
        self.account.begin(phase, self.source.made)
        self.until(self.faults.arm(kill), f"a process reached {kill}")

    def hold(self, phase: str, kill: Kill) -> Path:
        """Have a process wait at a point; return its file."""
        self.account.begin(phase, self.source.made)
        self.faults.arm(kill)
        return work_until(
            lambda: self.faults.held(kill.point), f"a process reached {kill}", self.work
        )

    def settle(self) -> None:
        """Wait until the table has all records of the topic."""
        work_until(self.account.is_complete, "all records in the table", self.jobs.replace_dead)

    def judge(self, table: KillTable, name: str) -> None:
        self.settle()
        self.jobs.interrupt()
        self.jobs.await_end()
        table.report(self.account.rows(), name)
        self.account.check()


Open = Callable[..., Scene]


@pytest.fixture
def open_scene(faults: Faults, tmp_path: Path) -> Iterator[Open]:
    with ExitStack() as stack:

        def open_scene(bootstrap: str, topic: str, *words: str) -> Scene:
            scene = Scene(bootstrap, topic, faults, tmp_path, *words)
            stack.callback(scene.jobs.end)
            return scene

        yield open_scene


def test_two_followers_and_upkeep_die_at_each_step(
    bootstrap: str,
    make_topic: MakeTopic,
    open_scene: Open,
    tmp_path: Path,
    kill_table: KillTable,
    kills: int,
) -> None:
    scene = open_scene(bootstrap, make_topic())
    upkeep = Upkeep(scene, Faults(tmp_path / "upkeep-faults"))
    phases = cycle(UPKEEP)
    archived = 0
    kinds = zip(cycle(POINTS), cycle(VICTIMS), strict=False)
    for n, kind in enumerate(islice(kinds, kills * len(POINTS))):
        scene.die(PHASES[kind[0]], Kill(*kind))
        archived += scene.await_commits(COMMITS_PER_KILL)
        if n % 2:
            upkeep.die(next(phases))
    scene.judge(kill_table, "Two followers, compaction and expiry")
    assert archived >= COMMITS_PER_KILL * len(POINTS) * kills
    assert archived > MANY_COMMITS or kills < KILLS_OF_MANY


class Upkeep:
    """Compaction and expiry of the table, in processes with faults of their own."""

    def __init__(self, scene: Scene, faults: Faults) -> None:
        self._scene, self._faults = scene, faults
        self._points = {phase: cycle(points) for phase, (_, points) in UPKEEP.items()}

    def die(self, phase: str) -> None:
        scene = self._scene
        point = next(self._points[phase])
        scene.account.begin(phase, scene.source.made)
        if phase == EXPIRY:
            scene.until(lambda: self._run(COMPACTION) == 0, "a compaction succeeds")
        happened = self._faults.arm(Kill(point, "self"))
        scene.until(lambda: self._run(phase) == -signal.SIGKILL, f"a process reached {point}")
        assert happened()

    def _run(self, phase: str) -> int:
        """Return the exit status, which is not 0 if a commit of a follower came first."""
        verb, *words = UPKEEP[phase][0]
        command = [LAKELOG, "table", verb, self._scene.topic, *words, "-b", self._scene.bootstrap]
        environment = self._faults.environment()
        done = subprocess.run(command, env=environment, capture_output=True, timeout=TIMEOUT_S)
        assert b"Traceback" not in done.stderr, done.stderr
        return done.returncode


def test_a_stopped_follower_continues_after_the_other_one_has_committed(
    bootstrap: str,
    make_topic: MakeTopic,
    open_scene: Open,
    kill_table: KillTable,
    kills: int,
) -> None:
    scene = open_scene(bootstrap, make_topic())
    for point in islice(cycle(POINTS), kills):
        held = scene.hold(STOPPED, Kill(point, "stop"))
        old = job_of(scene.jobs, held)
        scene.await_commits(COMMITS_PER_KILL)
        conflict = partial(old.has_logged, CONFLICT, len(old.text()))
        scene.faults.release(held)
        scene.until(conflict, "the old run reports a conflict")
    scene.judge(kill_table, STOPPED)


def job_of(jobs: Jobs, held: Path) -> Job:
    """Return the run whose Java was stopped with the waiting process."""
    _, java = held.read_text().split()
    parent = int(Path(f"/proc/{java}/stat").read_text().rsplit(")", 1)[1].split()[1])
    return next(job for job in jobs.running if job.process.pid == parent)


def test_the_broker_loses_records_under_two_followers(
    tmp_path: Path, open_scene: Open, kill_table: KillTable, kills: int
) -> None:
    topic = "orders"
    with BrokerProcess(tmp_path / "data") as broker:
        with Admin(broker.bootstrap) as admin:
            admin.topics.create(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})
        scene = open_scene(broker.bootstrap, topic, "--skip-lost")
        scene.await_commits(1)
        for n, point in enumerate(islice(cycle(POINTS), kills)):
            held = scene.hold(TRUNCATED, Kill(point, "pause"))
            if not n % 2:
                scene.settle()  # the other run archives records that are lost then
            broker.kill()
            for partition in range(PARTITIONS):
                cut_tail(broker.data / f"{topic}-{partition}", LOST_BATCHES)
            broker.restart()
            end = scene.faults.kill if n % 2 else scene.faults.release
            end(held)
            scene.await_commits(COMMITS_PER_KILL)
        scene.judge(kill_table, TRUNCATED)
        assert has_moved_rows(scene.address), "archived records were lost"
