"""The plans of runs: the clients, the faults, and the roles that must make progress."""

from __future__ import annotations

from dataclasses import dataclass

from torture.servers import NUMBERS, PARTITIONS

_PARTITIONS = tuple(f"{NUMBERS}-{index}" for index in range(PARTITIONS))


@dataclass(frozen=True)
class Plan:
    """One kind of run.

    Args:
        steady: names of clients, `<role>.<number>`.
        mortal: names of clients that a fault kills at times.
        has_groups: whether consumer groups read the numbers.
        only_leaders: whether killing leaders is the only fault.
    """

    steady: tuple[str, ...]
    mortal: tuple[str, ...]
    has_groups: bool
    only_leaders: bool

    @property
    def roles(self) -> tuple[str, ...]:
        """Return the roles of all clients, and the partitions that must accept writes."""
        names = [name.partition(".")[0] for name in (*self.steady, *self.mortal)]
        return *dict.fromkeys(names), *_PARTITIONS


PLANS = {
    "cluster": Plan(
        steady=(
            *("numbers.0", "numbers.1", "numbers.2", "pulse.0"),
            *("watch.0", "watch.1", "readers.0"),
        ),
        mortal=("ledger.0", "ledger.1", "transform.0", "transform.1", "readers.1"),
        has_groups=True,
        only_leaders=False,
    ),
    # The idempotent producers of four libraries.
    "libraries": Plan(
        steady=("numbers.0", "kafka-python.0", "aiokafka.0", "java.0", "watch.0", "watch.1"),
        mortal=(),
        has_groups=False,
        only_leaders=True,
    ),
}
PRODUCERS = ("numbers", "pulse", "ledger", "kafka-python", "aiokafka", "java")
CONSUMERS = ("transform", "readers", "watch")
