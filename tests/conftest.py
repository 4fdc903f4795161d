"""The broker that most client and protocol tests share."""

from __future__ import annotations

import gc
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from _pytest.runner import runtestprotocol
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadGroupScheduling

from broker_process import BrokerProcess
from file_oracle import check_data_folder
from moving_cluster import moving_cluster
from replica_oracle import check_replicas
from shaking import pauses

_LONGEST = (
    "test_short_run.py",
    "test_archive_kills.py",
    "test_readme.py",
    "test_standalone.py",
    "test_error_codes.py",
    "test_demo.py",
    "test_table_command.py",
    "test_archive_losses.py",
    "test_workers.py",
    "test_sweep.py",
    "test_power_loss_of_all.py",
    "test_dev_cluster.py",
    "test_zookeeper.py",
    "test_java_tools.py",
    "test_command_line.py",
    "test_command_streams.py",
    "test_commit_sets.py",
    "test_cluster.py",
)

gc.disable()
_COLLECTION_AFTER = 10_000
"""New objects until a collection. After 700, as by default, it takes a tenth of the unit tests."""

# How long an example takes is the machine's affair.
settings.register_profile("lakelog", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lakelog")


_REFUSED = r"Exception ignored in. <socket.socket fd=\d+, family=2, type=1, proto=6, laddr=..0\.0\."
"""kafka-python leaves a socket unclosed when a broker refuses its connection."""


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--moving-leaders"):
        warning = pytest.PytestUnraisableExceptionWarning
        config.addinivalue_line("filterwarnings", f"ignore:{_REFUSED}:pytest.{warning.__name__}")
        # pytest has already read the filters for the end of the run, which frees the last sockets.
        warnings.filterwarnings("ignore", _REFUSED, warning)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--every-version",
        action="store_true",
        help="send bad requests in every version of their API, not in the oldest and newest only",
    )
    parser.addoption("--fuzz-frames", type=int, default=5_000, help="damaged frames in process")
    parser.addoption("--fuzz-tcp-frames", type=int, default=2_000, help="damaged frames over TCP")
    parser.addoption("--fuzz-stalled", type=int, default=200, help="connections that stall")
    parser.addoption("--fuzz-seed", type=int, default=1, help="seed of the damage")
    parser.addoption("--corruptions", type=int, default=200, help="damages to files")
    parser.addoption("--corruption-seed", type=int, default=1, help="seed of the corruptions")
    parser.addoption("--endurance-rounds", type=int, default=3, help="kills of one broker")
    parser.addoption("--endurance-seed", type=int, default=1, help="what their moments come from")
    parser.addoption("--sink-kills", type=int, default=0, help="kills in each long form of a sink")
    parser.addoption("--readers", default="", help="the python of the environment of readers")
    parser.addoption("--torture-seed", type=int, default=1, help="seed of a cluster's faults")
    parser.addoption(
        "--prove", action="store_true", help="every planted bug and every seed of a proof"
    )
    parser.addoption(
        "--moving-leaders",
        action="store_true",
        help="the shared broker is three, which are restarted in turn; only tests that share it",
    )
    parser.addoption(
        "--long",
        action="store_true",
        help="tests marked `long`, more random histories, and a stop at every step of one",
    )


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out tests that only an option runs, and begin with the longest files.

    Otherwise one process could be left with such a file at the end.
    """
    if not config.getoption("--long"):
        _leave_out(config, items, lambda item: bool(item.get_closest_marker("long")))
    if not config.getoption("--prove"):
        _leave_out(config, items, lambda item: bool(item.get_closest_marker("prove")))
    if not config.getoption("--sink-kills"):
        _leave_out(config, items, lambda item: bool(item.get_closest_marker("kills")))
    if not config.getoption("--readers"):
        _leave_out(config, items, lambda item: bool(item.get_closest_marker("readers")))
    if config.getoption("--moving-leaders"):
        _leave_out(config, items, lambda item: "bootstrap" not in getattr(item, "fixturenames", ()))
    items.sort(key=lambda item: item.path.name not in _LONGEST)


def _leave_out(
    config: pytest.Config, items: list[pytest.Item], is_left_out: Callable[[pytest.Item], bool]
) -> None:
    left_out = [item for item in items if is_left_out(item)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not is_left_out(item)]


class _SchedulingByFile(LoadGroupScheduling):  # type: ignore[misc]
    """Gives a process whole files, or all files of one `xdist_group`.

    Tests of a file share imports and caches. Scheduling each test by itself also takes time in
    proportion to the square of their number.
    """

    def _split_scope(self, nodeid: str) -> str:
        path, _, group = nodeid.partition("@")
        return group or path.partition("::")[0]


@pytest.hookimpl(optionalhook=True)  # `make mutants` runs without xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object | None:
    """Use it for `--dist loadgroup`."""
    by_group = config.getoption("dist") == "loadgroup"
    return _SchedulingByFile(config, log) if by_group else None


def pytest_collection_finish() -> None:
    """Exclude all modules and tests from later collections, which would visit them again and again.

    That is a fifth of the time of the unit tests. Until then nothing is collected (`gc.disable`
    above): imports leave hardly any garbage.
    """
    gc.set_threshold(_COLLECTION_AFTER)
    gc.enable()
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
    """Report a test that passes once, in a process that has to send its reports to another one.

    Otherwise it would send six messages per test, and their encoding, decoding and handling take a
    tenth of the time of the unit tests. Times of fixtures are known only from all reports.
    """
    if not hasattr(item.config, "workerinput") or item.config.getoption("durations"):
        return None
    for report in runtestprotocol(item, log=False, nextitem=nextitem):
        if report.when == "call" or not report.passed:
            item.ihook.pytest_runtest_logreport(report=report)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return True


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """The order of a run that failed, which `-q` leaves out of the heading."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None and {"failed", "error"} & terminalreporter.stats.keys():
        terminalreporter.write_line(f"in the order of --randomly-seed={seed}")


@pytest.fixture
def device_path() -> Iterator[Path]:
    """A folder for files on a device; `tmp_path` is in memory in `make check`.

    A file system in memory does not say which pages are resident.
    """
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="lakelog-test-") as path:
        yield Path(path)


@pytest.fixture(scope="session", autouse=True)
def shaken(request: pytest.FixtureRequest) -> Iterator[None]:
    """Pause the brokers of this process at random, if `make shake` asks for it."""
    if pauses.VARIABLE not in os.environ:
        yield
        return
    worker = getattr(request.config, "workerinput", {}).get("workerid", "")
    with pauses.Shaker(f"{os.environ[pauses.VARIABLE]} {worker}") as shaker:
        yield
    print(f"shaken: {shaker.pauses} pauses of brokers")


@pytest.fixture(scope="session")
def is_long(pytestconfig: pytest.Config) -> bool:
    """Whether the tests marked `histories` have as long as they need."""
    return bool(pytestconfig.getoption("--long"))


@pytest.fixture(scope="session")
def leaders_move(pytestconfig: pytest.Config) -> bool:
    """Whether `bootstrap` is a cluster of three brokers that are restarted in turn."""
    return bool(pytestconfig.getoption("--moving-leaders"))


@pytest.fixture(scope="session")
def bootstrap(tmp_path_factory: pytest.TempPathFactory, leaders_move: bool) -> Iterator[str]:
    """host:port of one broker for the whole session; a test makes topics of its own in it.

    What all of them have left on disk is then read by Apache Kafka's tools. With
    `--moving-leaders` the addresses of three brokers, with commas.
    """
    elsewhere = os.environ.get("LAKELOG_TEST_BOOTSTRAP")
    if elsewhere:
        yield elsewhere
        return
    if leaders_move:
        with moving_cluster(tmp_path_factory.mktemp("moving-cluster")) as mover:
            yield mover.cluster.bootstrap_servers
        assert any(check_replicas(mover.folders).values())
        for folder in mover.folders:
            check_data_folder(folder)
        return
    with BrokerProcess(tmp_path_factory.mktemp("shared-broker") / "data") as broker:
        yield broker.bootstrap
        broker.stop()
        check_data_folder(broker.data)
