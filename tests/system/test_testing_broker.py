"""`lakelog.testing.broker`, as a test of another project uses it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

import lakelog.testing
from clients.adapters.own import OwnAdmin
from lakelog.base.config.key import ConfigError
from lakelog.base.errors import KafkaError
from lakelog.client.admin import Admin
from lakelog.client.errors import TopicNotFoundError
from lakelog.testing import Broker, BrokerError
from system.processes import await_exit

_TIMEOUT_S = 60

_HOLDER = """
import signal
import lakelog.testing
# A shell that starts the suite in the background may have it ignore these.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
with lakelog.testing.broker() as broker:
    print(broker.pid, broker.data.parent, flush=True)
    signal.pause()
"""


def topics_of(broker: Broker) -> dict[str, int]:
    with Admin(broker.bootstrap_servers) as admin:
        return {topic.name: len(topic.partitions) for topic in admin.topics.list()}


def kill_unseen(broker: Broker) -> None:
    """Kills the process behind the back of `broker`."""
    pid = broker.pid
    os.kill(pid, signal.SIGKILL)
    await_exit(pid)


def test_topics_are_there_at_the_beginning() -> None:
    with lakelog.testing.broker({"orders": 3, "invoices": 1}) as broker:
        assert topics_of(broker) == {"orders": 3, "invoices": 1}
    with lakelog.testing.broker(["orders"]) as broker:
        assert topics_of(broker) == {"orders": 1}


def test_topics_are_created_and_deleted() -> None:
    with lakelog.testing.broker() as broker:
        broker.create_topic("orders", partitions=2, config={"retention.ms": 5, "preallocate": True})
        with closing(OwnAdmin(broker.bootstrap_servers)) as admin:
            configs = admin.topic_config("orders")
        assert (configs["retention.ms"], configs["preallocate"]) == ("5", "true")
        with pytest.raises(KafkaError, match="orders"):
            broker.create_topic("orders")
        broker.delete_topic("orders")
        with pytest.raises(TopicNotFoundError):
            broker.delete_topic("orders")
        assert topics_of(broker) == {}


def test_settings_of_topics_may_be_durations_and_sizes() -> None:
    with lakelog.testing.broker() as broker:
        broker.create_topic("weekly", config={"retention.ms": "7d", "segment.bytes": "64MiB"})
        with closing(OwnAdmin(broker.bootstrap_servers)) as admin:
            configs = admin.topic_config("weekly")
        assert (configs["retention.ms"], configs["segment.bytes"]) == ("604800000", "67108864")
        with pytest.raises(ConfigError, match="not a duration"):
            broker.create_topic("never", config={"retention.ms": "7x"})


def test_a_restart_keeps_the_address_and_the_data() -> None:
    with lakelog.testing.broker(["orders"]) as broker:
        address, process = broker.bootstrap_servers, broker.pid
        broker.restart()
        assert broker.pid != process
        broker.kill()
        broker.start()
        assert broker.bootstrap_servers == address
        assert topics_of(broker) == {"orders": 1}
        broker.stop()
        broker.restart()
        assert topics_of(broker) == {"orders": 1}
        assert broker.log.count("ready on") == 4


def test_a_temporary_folder_is_removed_and_a_given_one_stays(tmp_path: Path) -> None:
    with lakelog.testing.broker() as broker:
        scratch = broker.data.parent
        assert broker.data.is_dir()
    assert not scratch.exists()
    for names in (["orders"], []):
        with lakelog.testing.broker(names, folder=tmp_path / "data") as broker:
            assert topics_of(broker) == {"orders": 1}


def test_settings_are_the_brokers() -> None:
    settings = {"num.partitions": 7, "auto.create.topics.enable": False}
    with lakelog.testing.broker(settings=settings) as broker:
        broker.create_topic("wide", partitions=-1)
        assert topics_of(broker) == {"wide": 7}


def test_a_bad_setting_is_named_with_its_value() -> None:
    with (
        pytest.raises(BrokerError, match=r"ended with status 2 .*\n.*num\.partitions=many"),
        lakelog.testing.broker(settings={"num.partitions": "many"}),
    ):
        pass


def test_a_port_in_use_and_an_invalid_port_are_refused() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with (
            pytest.raises(BrokerError, match=f"port {port} .* in use; port=0 takes a free one"),
            lakelog.testing.broker(port=port),
        ):
            pass
    with (
        pytest.raises(BrokerError, match=r"port 65536 .*0-65535"),
        lakelog.testing.broker(port=65536),
    ):
        pass


def test_a_chosen_port() -> None:
    with lakelog.testing.broker() as broker:
        port = broker.port
    with lakelog.testing.broker(port=port) as broker:
        assert broker.bootstrap_servers == f"127.0.0.1:{port}"
        assert topics_of(broker) == {}


def test_one_name_is_no_list_of_names() -> None:
    with (
        pytest.raises(TypeError, match=r"pass a list: \['orders'\]"),
        lakelog.testing.broker("orders"),
    ):
        pass


def test_calls_at_the_wrong_time() -> None:
    with lakelog.testing.broker() as broker:
        with pytest.raises(BrokerError, match="runs already"):
            broker.start()
        broker.stop()
        for call in (broker.stop, broker.kill, lambda: broker.create_topic("orders")):
            with pytest.raises(BrokerError, match=r"does not run; start\(\) starts it"):
                call()


def test_a_broker_that_ended_by_itself_is_an_error_with_its_log() -> None:
    with lakelog.testing.broker() as broker:
        kill_unseen(broker)
        with pytest.raises(BrokerError, match=r"by itself with status -9(.|\n)*ready on"):
            broker.create_topic("orders")
    with (
        pytest.raises(BrokerError, match="by itself with status -9"),
        lakelog.testing.broker() as broker,
    ):
        kill_unseen(broker)


def test_modules_of_the_working_directory_are_not_the_brokers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "logging.py").write_text("raise RuntimeError('the wrong module')")
    monkeypatch.chdir(tmp_path)
    with lakelog.testing.broker(["orders"]) as broker:
        assert topics_of(broker) == {"orders": 1}


def test_coverage_of_the_test_is_not_measured_in_the_broker(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COVERAGE_PROCESS_START", "pyproject.toml")
    monkeypatch.setenv("COV_CORE_SOURCE", "orders")
    with lakelog.testing.broker() as broker:
        environment = Path(f"/proc/{broker.pid}/environ").read_bytes()
    assert b"PATH=" in environment
    assert b"COV" not in environment


@contextmanager
def holder() -> Iterator[tuple[subprocess.Popen[str], int, Path]]:
    """A process that holds a broker; the broker's process, and the folder of both."""
    command = [sys.executable, "-c", _HOLDER]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, process_group=0) as process:
        try:
            assert process.stdout is not None
            pid, _, scratch = process.stdout.readline().strip().partition(" ")
            assert Path(scratch).is_dir()
            yield process, int(pid), Path(scratch)
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_the_broker_ends_with_the_process_that_started_it(number: signal.Signals) -> None:
    with holder() as (process, pid, scratch):
        process.send_signal(number)
        assert process.wait(_TIMEOUT_S) == -number
        await_exit(pid)
        assert not scratch.exists()


def test_an_interrupt_is_for_the_test_alone() -> None:
    """A terminal sends it to the whole process group; the test then stops the broker in order."""
    with holder() as (process, pid, scratch):
        os.killpg(process.pid, signal.SIGINT)
        process.wait(_TIMEOUT_S)
        await_exit(pid)
        assert not scratch.exists()


def test_public_names() -> None:
    assert lakelog.testing.__all__ == ["Broker", "BrokerError", "Cluster", "broker", "cluster"]
    assert all(getattr(lakelog.testing, name) for name in lakelog.testing.__all__)
