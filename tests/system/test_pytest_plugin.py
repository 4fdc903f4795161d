"""The pytest plugin, installed from a wheel and used by other projects.

The wheel's folder comes first in PYTHONPATH, then the environment that runs these tests, which has
pytest and the clients. So pytest finds the plugin by its entry point, as it does for a user.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from system.processes import await_exit

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "testing.md"
TIMEOUT_S = 300
_SOURCES = ("LICENSE", "NOTICE", "README.md", "pyproject.toml")
_PIP_OFFLINE = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check")


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process in which lakelog is installed from a wheel."""
    checkout, site = (tmp_path_factory.mktemp(name) for name in ("checkout", "site"))
    for name in _SOURCES:
        shutil.copy(ROOT / name, checkout)
    shutil.copytree(ROOT / "src", checkout / "src", ignore=shutil.ignore_patterns("__pycache__"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", *_PIP_OFFLINE]
    subprocess.run([*pip, "--target", str(site), str(checkout)], check=True, timeout=TIMEOUT_S)
    path = os.pathsep.join((str(site), sysconfig.get_path("purelib")))
    return os.environ | {"PYTHONPATH": path}


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A project without tests yet."""
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
    return tmp_path


def run(
    folder: Path, environment: dict[str, str], *options: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *options],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def outcomes(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """How many tests passed, failed and so on, by pytest's last line."""
    last = done.stdout.rstrip().rpartition("\n")[2]
    return {kind: int(count) for count, kind in re.findall(r"(\d+) ([a-z]+)", last)}


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "xdist"])
def test_the_tests_of_the_example_pass(
    tmp_path: Path, environment: dict[str, str], options: tuple[str, ...]
) -> None:
    folder = tmp_path / "orders"
    shutil.copytree(ROOT / "examples" / "orders", folder)
    done = run(folder, environment, "-q", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert outcomes(done) == {"passed": 3}
    assert "arning" not in done.stdout + done.stderr


def test_the_examples_of_the_page_pass(project: Path, environment: dict[str, str]) -> None:
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    assert [kind for kind, _ in blocks] == ["python", "ini", "python", "python", "python"]
    names = ("test_orders.py", "pytest.ini", "conftest.py", "test_restart.py", "test_deaths.py")
    for name, (_, text) in zip(names, blocks, strict=True):
        (project / name).write_text(text)
    done = run(project, environment)
    assert outcomes(done) == {"passed": 3}, done.stdout


def test_a_cluster_serves_all_tests_of_the_session(
    project: Path, environment: dict[str, str]
) -> None:
    (project / "test_cluster.py").write_text(
        "from lakelog.client.admin import Admin\n"
        "def test_brokers(lakelog_cluster):\n"
        "    with Admin(lakelog_cluster.bootstrap_servers) as admin:\n"
        "        assert len(admin.describe_cluster().brokers) == 3\n"
        "def test_replicas(lakelog_cluster):\n"
        "    lakelog_cluster.create_topic('t')\n"
        "    assert lakelog_cluster.leader_id('t') in lakelog_cluster.brokers\n"
    )
    done = run(project, environment)
    assert outcomes(done) == {"passed": 2}, done.stdout


def test_topics_are_of_one_test_alone_and_deleted_after_it(
    project: Path, environment: dict[str, str]
) -> None:
    (project / "test_topics.py").write_text(
        """
import pytest
from lakelog.client import connect

seen = set()

def topics(broker):
    with connect(broker.bootstrap_servers) as client:
        return {topic.name: len(topic.partitions) for topic in client.admin.topics.list()}

@pytest.mark.parametrize("text", ["a", "a b/ü"])
def test_one_topic(lakelog_broker, lakelog_topic, text):
    assert topics(lakelog_broker) == {lakelog_topic: 1}
    assert lakelog_topic not in seen
    seen.add(lakelog_topic)

def test_several_topics(lakelog_broker, lakelog_topic_factory):
    wide = lakelog_topic_factory("wide", partitions=3, config={"retention.ms": "5"})
    again = lakelog_topic_factory("wide")
    assert wide.startswith("wide-")
    assert topics(lakelog_broker) == {wide: 3, again: 1}

def test_a_topic_that_the_test_deletes(lakelog_broker, lakelog_topic):
    lakelog_broker.delete_topic(lakelog_topic)
    assert topics(lakelog_broker) == {}
"""
    )
    done = run(project, environment)
    assert outcomes(done) == {"passed": 4}, done.stdout


def test_settings_of_the_ini_file_the_command_line_and_a_fixture(
    project: Path, environment: dict[str, str]
) -> None:
    with (project / "pytest.ini").open("a") as ini:
        ini.write("lakelog_settings =\n    num.partitions = 2\n    message.max.bytes=5000\n")
    (project / "test_settings.py").write_text(
        """
from lakelog.client.admin import Admin, ResourceType

def test_settings(lakelog_broker):
    with Admin(lakelog_broker.bootstrap_servers) as admin:
        entries = admin.configs.describe(ResourceType.BROKER, "1")
    values = [entries[name].value for name in ("num.partitions", "message.max.bytes")]
    assert values == ["3", "5000"]
"""
    )
    done = run(project, environment, "--lakelog-set", "num.partitions=3")
    assert outcomes(done) == {"passed": 1}, done.stdout
    (project / "conftest.py").write_text(
        """
import pytest

@pytest.fixture(scope="session")
def lakelog_settings(lakelog_settings):
    return {**lakelog_settings, "num.partitions": 3}
"""
    )
    done = run(project, environment)
    assert outcomes(done) == {"passed": 1}, done.stdout


def test_bad_settings(project: Path, environment: dict[str, str]) -> None:
    (project / "test_nothing.py").write_text("def test_nothing(lakelog_broker): pass")
    done = run(project, environment, "--lakelog-set", "num.partitions")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert done.stderr == "ERROR: --lakelog-set: 'num.partitions' is not KEY=VALUE\n\n"
    done = run(project, environment, "--lakelog-set", "num.partitions=many")
    assert outcomes(done) == {"error": 1}, done.stdout
    assert "num.partitions=many: not a whole number" in done.stdout


def test_a_failure_shows_the_log_of_the_broker(project: Path, environment: dict[str, str]) -> None:
    (project / "test_failure.py").write_text("def test_failure(lakelog_topic): assert False")
    done = run(project, environment)
    assert outcomes(done) == {"failed": 1}
    assert "end of the log of lakelog_broker" in done.stdout
    assert re.search("topic_created: Created topic 'test_failure-[0-9a-f]{8}'", done.stdout)


def test_an_interrupt_leaves_no_process(project: Path, environment: dict[str, str]) -> None:
    (project / "test_waiting.py").write_text(
        "import signal\n"
        # A shell that starts the suite in the background has it ignore ^C.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "def test_waiting(lakelog_broker, capfd):\n"
        "    with capfd.disabled():\n"
        "        print('broker', lakelog_broker.pid, lakelog_broker.data, flush=True)\n"
        "    signal.pause()\n"
    )
    command = [sys.executable, "-m", "pytest"]
    with subprocess.Popen(
        command, cwd=project, env=environment, stdout=subprocess.PIPE, text=True, process_group=0
    ) as process:
        try:
            assert process.stdout is not None
            line = next(line for line in process.stdout if "broker" in line)
            pid, data = line.rpartition("broker ")[2].split()
        finally:
            os.killpg(process.pid, signal.SIGINT)
        assert "KeyboardInterrupt" in process.stdout.read()
        assert process.wait(TIMEOUT_S) == pytest.ExitCode.INTERRUPTED
    await_exit(int(pid))
    assert not Path(data).parent.exists()


def test_the_plugin_can_be_left_out(project: Path, environment: dict[str, str]) -> None:
    (project / "test_nothing.py").write_text("def test_nothing(lakelog_broker): pass")
    done = run(project, environment, "-p", "no:lakelog")
    assert "fixture 'lakelog_broker' not found" in done.stdout


def test_a_start_of_pytest_imports_the_plugin_alone(
    project: Path, environment: dict[str, str]
) -> None:
    (project / "test_modules.py").write_text(
        "import sys\n"
        "def test_modules():\n"
        "    ours = {name for name in sys.modules if 'lakelog' in name}\n"
        "    assert ours == {'pytest_lakelog'}\n"
    )
    done = run(project, environment)
    assert outcomes(done) == {"passed": 1}, done.stdout


def test_pytest_in_a_process_that_has_imported_lakelog(
    project: Path, environment: dict[str, str]
) -> None:
    """pytest warns of packages of a plugin's distribution that it is too late to rewrite."""
    (project / "test_nothing.py").write_text("def test_nothing(lakelog_broker): pass")
    code = "import lakelog, pytest, sys; sys.exit(pytest.main(['-W', 'error']))"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert outcomes(done) == {"passed": 1}, done.stdout + done.stderr
