"""Several brokers that form a cluster, for the time of a `with` block.

Each is a `Broker` in a process of its own, so a test kills and restarts brokers by their node ids.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from lakelog.base.config.quantities import plain_value
from lakelog.testing.broker_process import (
    QUICK_SETTINGS,
    START_TIMEOUT_S,
    Broker,
    BrokerError,
    Setting,
    setting_text,
)

if TYPE_CHECKING:
    from lakelog.client.admin import Admin

_REPLICATION_FACTOR_MAX = 3
_POLL_S = 0.05
_TIMEOUT_S = 30.0
_SHOWN = 20
"""The most lines of an error about replicas."""


class Cluster:
    """Running brokers by node id, made by `cluster`; node ids begin with 1."""

    def __init__(self, brokers: Mapping[int, Broker]) -> None:
        self.brokers = brokers

    def __repr__(self) -> str:
        return f"<Cluster {self.bootstrap_servers}>"

    @property
    def bootstrap_servers(self) -> str:
        """The addresses of all brokers, as clients want them."""
        return ",".join(broker.bootstrap_servers for broker in self.brokers.values())

    @property
    def controller_id(self) -> int:
        """The node id of the controller; -1 if there is none at present."""
        with self._admin() as admin:
            return admin.brokers.describe().controller_id

    def leader_id(self, topic: str, partition: int = 0) -> int:
        """Return the node id of a partition's leader; -1 if it has none at present.

        Raises `TopicNotFoundError`.
        """
        with self._admin() as admin:
            return admin.topics.describe(topic).partitions[partition].leader

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        config: Mapping[str, Setting] | None = None,
        replication_factor: int = -1,
    ) -> None:
        """Create a topic with three replicas, or with as many as there are brokers.

        `config` and the errors are as for `Broker.create_topic`.
        """
        configs = {
            key: plain_value(key, setting_text(value)) for key, value in (config or {}).items()
        }
        with self._admin() as admin:
            admin.topics.create(
                name,
                partitions=partitions,
                replication_factor=replication_factor,
                configs=configs,
            )

    def await_in_sync(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Return when all brokers serve and all replicas are in sync.

        timeout_s: seconds. Raises `BrokerError`, which names the brokers and replicas that are not.
        """
        from lakelog.base.errors import KafkaError

        deadline = time.monotonic() + timeout_s
        missing: Sequence[object] = ()
        while time.monotonic() < deadline:
            # A broker that starts, or a change of the controller, is an error of the request.
            try:
                missing = self._out_of_sync()
            except KafkaError as error:
                missing = [error]
            if not missing:
                return
            time.sleep(_POLL_S)
        text = "\n".join(str(what) for what in missing[:_SHOWN])
        raise BrokerError(f"not in sync after {timeout_s:g} s:\n{text}")

    def _out_of_sync(self) -> list[str]:
        """Name the brokers that do not serve, and the partitions whose replicas are not in sync."""
        with self._admin() as admin:
            described = admin.brokers.describe().brokers
            online = {broker.node_id for broker in described if not broker.is_fenced}
            topics = admin.topics.list(internal=True)
        partitions = [
            f"{topic.name}-{row.partition} with leader {row.leader} and ISR {row.isr}"
            for topic in topics
            for row in topic.partitions
            if len(row.isr) != len(row.replicas) or row.leader < 0
        ]
        return [f"broker {node}" for node in sorted(set(self.brokers) - online)] + partitions

    def _admin(self) -> Admin:
        from lakelog.client.admin import Admin

        return Admin(self.bootstrap_servers, client_id="lakelog-testing", timeout_s=_TIMEOUT_S)


@contextmanager
def cluster(
    topics: Iterable[str] | Mapping[str, int] = (),
    *,
    brokers: int = 3,
    settings: Mapping[str, Setting] | None = None,
    folder: str | os.PathLike[str] | None = None,
) -> Iterator[Cluster]:
    """Run brokers that form a cluster for the time of a `with` block.

    A new topic has three replicas and needs two of them in sync, if there are three brokers.

    Args:
        topics: names of topics to create, or a mapping of names to numbers of partitions.
        brokers: how many.
        settings: of every broker, with Kafka's keys.
        folder: where the brokers keep their data, which then stays; else a temporary folder.

    Raises `BrokerError` if a broker does not start, or was not in order at the end of the block.
    """
    if isinstance(topics, str):
        raise TypeError(f"topics is the string {topics!r}; pass a list: [{topics!r}]")
    if brokers < 1:
        raise ValueError(f"a cluster has at least 1 broker, not {brokers}")
    partitions = topics if isinstance(topics, Mapping) else dict.fromkeys(topics, 1)
    with (
        tempfile.TemporaryDirectory(prefix="lakelog-", ignore_cleanup_errors=True) as scratch,
        ExitStack() as stack,
    ):
        root = Path(scratch if folder is None else folder).absolute()
        root.mkdir(parents=True, exist_ok=True)
        common = _settings(brokers, root) | dict(settings or {})
        running = {}
        for node_id in range(1, brokers + 1):
            own = Path(scratch) / f"scratch-{node_id}"
            own.mkdir()
            data = root / f"broker-{node_id}"
            made = Broker(data, own, 0, common | {"node.id": node_id})
            running[node_id] = stack.enter_context(closing(made))
            made.start()
        whole = Cluster(running)
        whole.await_in_sync()
        for name, count in partitions.items():
            whole.create_topic(name, count)
        yield whole


def _settings(brokers: int, root: Path) -> dict[str, Setting]:
    factor = min(brokers, _REPLICATION_FACTOR_MAX)
    return QUICK_SETTINGS | {
        "lakelog.metadata.store": f"sqlite:{root / 'metadata.db'}",
        "default.replication.factor": factor,
        "min.insync.replicas": 2 if factor == _REPLICATION_FACTOR_MAX else 1,
    }
