"""Three brokers whose leaders, coordinators and controller move all the time.

One broker after the other is stopped in order and started again. It hands its partitions over when
it stops, and gets them back when its replicas are in sync again. So each partition has a leader
nearly always, and another one every few seconds.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lakelog.testing.brokers import Cluster, Setting, cluster
from shaking import pauses

BROKERS = 3
_PAUSE_S = 1.0
_END_TIMEOUT_S = 300.0
_SETTINGS: dict[str, Setting] = {
    "offsets.topic.num.partitions": 3,
    "transaction.state.log.num.partitions": 3,
}


class Mover:
    """A thread that restarts the brokers of a cluster in turn, and counts the restarts."""

    def __init__(self, brokers: Cluster) -> None:
        self.cluster = brokers
        self.restarts = 0
        self._ending = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="mover")
        self._thread.start()

    @property
    def folders(self) -> list[Path]:
        """The data folders of the brokers."""
        return [broker.data for broker in self.cluster.brokers.values()]

    def end(self) -> None:
        """Return when all brokers run and are in sync. Raises the error of the thread."""
        self._ending.set()
        self._thread.join(_END_TIMEOUT_S)
        assert not self._thread.is_alive(), "a broker still starts"
        self.check()

    def check(self) -> None:
        """Raise the error of the thread, if it has ended with one: no broker moves any more."""
        if self._error is not None:
            logs = [broker.log for broker in self.cluster.brokers.values()]
            print(*logs, sep="\n", file=sys.stderr)
            raise self._error

    def _run(self) -> None:
        try:
            for broker in itertools.cycle(self.cluster.brokers.values()):
                if self._ending.wait(_PAUSE_S):
                    return
                broker.restart()
                pauses.note(broker.pid)
                self.cluster.await_in_sync()
                self.restarts += 1
        except Exception as error:  # noqa: BLE001 - raised by `check`
            self._error = error


@contextmanager
def moving_cluster(folder: Path) -> Iterator[Mover]:
    """Run a cluster whose leaders move within the block, and come to rest at its end.

    Raises the error of the mover: a `BrokerError` if a broker did not stop or start in order.
    """
    with cluster(brokers=BROKERS, folder=folder, settings=_SETTINGS) as running:
        mover = Mover(running)
        try:
            yield mover
        finally:
            mover.end()
        assert mover.restarts, "no leader has moved"
