"""The pytest plugin of lakelog: a broker for the session, and topics for single tests.

pytest imports this package at every start, and rewrites the assertions in a plugin's package.
Therefore the plugin is outside the package `lakelog`, whose assertions stay unchanged and which is
imported when a test first requests a broker.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pluggy import Result
    from pytest import TestReport

    from lakelog.testing import Broker, Cluster

_LOG_LINES = 50
_TEST_NAME_MAX = 100
_SETTING_HELP = "setting of the broker of the fixture lakelog_broker, with Kafka's keys"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addini("lakelog_settings", f"KEY=VALUE, one a line: {_SETTING_HELP}", type="linelist")
    parser.getgroup("lakelog").addoption(
        "--lakelog-set",
        metavar="KEY=VALUE",
        action="append",
        default=[],
        help=f"{_SETTING_HELP}; may be repeated; overrides lakelog_settings of the ini file",
    )


def pytest_configure(config: pytest.Config) -> None:
    _configured(config)


def _configured(config: pytest.Config) -> dict[str, str]:
    """Return the settings of ini file and command line. Raises `pytest.UsageError`."""
    ini, options = config.getini("lakelog_settings"), config.getoption("lakelog_set")
    settings = {}
    for source, lines in (("lakelog_settings", ini), ("--lakelog-set", options)):
        for line in lines:
            key, equals, value = (part.strip() for part in line.partition("="))
            if not equals or not key:
                raise pytest.UsageError(f"{source}: {line!r} is not KEY=VALUE")
            settings[key] = value
    return settings


@pytest.fixture(scope="session")
def lakelog_settings(pytestconfig: pytest.Config) -> Mapping[str, str | int | float | bool]:
    """Settings of lakelog_broker; a conftest.py may define this fixture with others."""
    return dict(_configured(pytestconfig))


@pytest.fixture(scope="session")
def lakelog_broker(
    lakelog_settings: Mapping[str, str | int | float | bool],
) -> Iterator[Broker]:
    """A Kafka broker for all tests of the session; lakelog_broker.bootstrap_servers is its address.

    With pytest-xdist each worker has its own.
    """
    from lakelog.testing import broker

    with broker(settings=lakelog_settings) as running:
        yield running


@pytest.fixture(scope="session")
def lakelog_cluster(
    lakelog_settings: Mapping[str, str | int | float | bool],
) -> Iterator[Cluster]:
    """A cluster of three Kafka brokers for all tests of the session.

    lakelog_cluster.bootstrap_servers are the addresses. Start again the brokers that a test kills.
    """
    from lakelog.testing import cluster

    with cluster(settings=lakelog_settings) as running:
        yield running


@pytest.fixture
def lakelog_topic_factory(
    lakelog_broker: Broker, request: pytest.FixtureRequest
) -> Iterator[Callable[..., str]]:
    """Create topics: lakelog_topic_factory(prefix, partitions=1, config=None) returns a name.

    No other test uses the name. The topics are deleted after the test.
    """
    created = []

    def create(
        prefix: str = "", partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> str:
        name = f"{prefix or _as_topic(request.node.name)}-{uuid.uuid4().hex[:8]}"
        lakelog_broker.create_topic(name, partitions, config)
        created.append(name)
        return name

    yield create

    from lakelog.client.errors import TopicNotFoundError

    for name in created:
        with suppress(TopicNotFoundError):
            lakelog_broker.delete_topic(name)


@pytest.fixture
def lakelog_topic(lakelog_topic_factory: Callable[..., str]) -> str:
    """The name of an empty topic of one partition that no other test uses."""
    return lakelog_topic_factory()


def _as_topic(test_name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", test_name, flags=re.ASCII).strip("-")[:_TEST_NAME_MAX]


@pytest.hookimpl(hookwrapper=True)  # the older kind of wrapper: the plugin loads in pytest 7 too
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Result[TestReport], None]:
    """Shows the end of the broker's log with a test that failed."""
    report = (yield).get_result()
    broker = getattr(item, "funcargs", {}).get("lakelog_broker")
    if report.failed and broker is not None:
        lines = broker.log.splitlines()[-_LOG_LINES:]
        report.sections.append(("end of the log of lakelog_broker", "\n".join(lines)))
