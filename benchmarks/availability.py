"""Seconds without acknowledgement while brokers, disks, the network and the store fail.

Three brokers, each on a host of its own in a network namespace, have twelve partitions of three
replicas. A producer of confluent-kafka writes to every partition all the time, with all
acknowledgements and idempotence. The program causes one fault after the other and prints, for each
cluster, the longest time without an acknowledgement: of the worst partition that a faulty broker
led, and of the worst of all others. It ends when acknowledgements are steady after the end of the
fault, or at a limit, which has the sign `>`. One cluster runs at a time. The program passes no
judgement. It needs root or unprivileged user namespaces.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from benchmark import Benchmark  # noqa: E402
from clusters import CLUSTERS, SIZE  # noqa: E402
from outages import KINDS, Outage  # noqa: E402
from rounds import note  # noqa: E402
from scenes import BROKER_HOSTS, PARTITIONS, STORE_HOSTS, Scene  # noqa: E402
from tables import Table  # noqa: E402

import kafka_jars  # noqa: E402
from torture.hosts import Hosts, enter_own_network  # noqa: E402

_COLUMNS = (
    "fault",
    "cluster",
    "rounds",
    "its partitions s",
    "of Kafka's",
    "others s",
    "of Kafka's",
)
_DEFAULT_CLUSTERS = ("zookeeper", "kafka", "kafka-apart")
_INSIDE = "--inside"
_READER = "{}: its reader"


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/availability.py", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1, help="of each fault")
    parser.add_argument("--hold", type=float, default=45.0, help="seconds of a fault that lasts")
    parser.add_argument("--limit", type=float, default=90.0, help="seconds to wait, at most")
    parser.add_argument("--fault", choices=KINDS, nargs="+", default=list(KINDS))
    parser.add_argument(
        "--cluster", choices=CLUSTERS, nargs="+", default=_DEFAULT_CLUSTERS, help="measured ones"
    )
    parser.add_argument("--record", action="store_true", help="add to benchmarks/RESULTS.md")
    parser.add_argument(_INSIDE, action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args(argv)


class _Pause(NamedTuple):
    """A time without acknowledgement in seconds, and whether it lasted until the limit."""

    seconds: float
    is_over: bool = True

    def __str__(self) -> str:
        return f"{'' if self.is_over else '> '}{self.seconds:.1f}"


class _Found(NamedTuple):
    """The pauses of one fault: of the partitions that have it, and of the others, if any."""

    its: _Pause
    others: _Pause | None


_Pauses = dict[tuple[str, str], list[_Found]]
"""By fault and by cluster."""


def _measure_one(scene: Scene, name: str, options: argparse.Namespace) -> dict[str, _Found]:
    """Return what one fault caused, by the name of its row."""
    kind, written = KINDS[name], scene.acknowledgements
    leaders = {number: scene.led_by([number]) for number in scene.numbers}
    with kind.begin(scene) as outage:
        if outage.lasts:
            time.sleep(options.hold)
        else:
            written.await_steady(outage.since, options.limit)
    is_over = written.await_steady(time.monotonic(), options.limit)
    found = {kind.text: _found(scene, outage, leaders, is_over)}
    if outage.reader is not None:
        reader = outage.reader
        pause = _Pause(reader.waited_s, reader.read_after_s is not None)
        found[_READER.format(kind.text)] = _Found(pause, None)
    return found


def _found(scene: Scene, outage: Outage, leaders: dict[int, list[int]], is_over: bool) -> _Found:
    written = scene.acknowledgements
    pauses = [written.longest_pause(each, outage.since) for each in range(PARTITIONS)]
    led = outage.partitions or [each for number in outage.brokers for each in leaders[number]]
    its = [pauses[each] for each in led]
    others = [pause for each, pause in enumerate(pauses) if each not in led]
    if not its:
        return _Found(_Pause(max(others), is_over), None)
    return _Found(_Pause(max(its), is_over), _Pause(max(others), is_over) if others else None)


def _measure_cluster(
    kind: str, folder: Path, hosts: Hosts, options: argparse.Namespace, pauses: _Pauses
) -> None:
    """Cause each fault in a cluster; a cluster that a fault damaged for good is replaced."""
    faults = [name for name in options.fault if kind in KINDS[name].clusters]
    with ExitStack() as stack:
        scene: Scene | None = None
        for number, name in enumerate(faults):
            if scene is None or not scene.await_full():
                stack.close()
                note(f"{CLUSTERS[kind].name}: start")
                scene = stack.enter_context(Scene(kind, folder / f"{kind}-{number}", hosts))
                scene.await_full()
            for text, found in _measure_one(scene, name, options).items():
                pauses[text, CLUSTERS[kind].name].append(found)
                others = f", others {found.others} s" if found.others else ""
                note(f"{CLUSTERS[kind].name}, {text}: {found.its} s{others}")
            if errors := scene.acknowledgements.errors:
                note(f"  errors of the producer: {dict(errors)}")
                errors.clear()


def _median(pauses: list[_Pause]) -> _Pause:
    return _Pause(
        statistics.median(each.seconds for each in pauses), all(each.is_over for each in pauses)
    )


def _rows(pauses: _Pauses) -> Iterator[list[str]]:
    by_fault: dict[str, dict[str, list[_Found]]] = defaultdict(dict)
    for (text, cluster), found in pauses.items():
        by_fault[text][cluster] = found
    for text, clusters in by_fault.items():
        its = {name: _median([each.its for each in found]) for name, found in clusters.items()}
        others = {
            name: _median([each.others for each in found if each.others])
            for name, found in clusters.items()
            if any(each.others for each in found)
        }
        for name, found in clusters.items():
            yield [
                text,
                name,
                str(len(found)),
                *_cells(its, name),
                *_cells(others, name),
            ]


def _cells(pauses: dict[str, _Pause], name: str) -> tuple[str, str]:
    """Return a pause, and its part of the shortest one of Kafka's clusters."""
    if name not in pauses:
        return "", ""
    kafka = [each.seconds for other, each in pauses.items() if other.startswith("Kafka")]
    if name.startswith("Kafka") or not kafka or not min(kafka):
        return str(pauses[name]), ""
    return str(pauses[name]), f"{pauses[name].seconds / min(kafka):.2f}"


def _measure(options: argparse.Namespace, folder: Path) -> Iterator[Table]:
    pauses: _Pauses = defaultdict(list)
    with Hosts([*BROKER_HOSTS, *STORE_HOSTS]) as hosts:
        for number in range(options.rounds):
            for kind in options.cluster:
                _measure_cluster(kind, folder / str(number), hosts, options, pauses)
    yield Table(_COLUMNS, list(_rows(pauses)), len(options.cluster))


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    if not options.inside:
        # A network of its own does not reach a repository of jars.
        kafka_jars.class_path("tools")
        enter_own_network([sys.executable, __file__, *argv, _INSIDE])

    def about() -> str:
        return (
            f"The longest time without an acknowledgement, in seconds; {SIZE} brokers, "
            f"{PARTITIONS} partitions of {SIZE} replicas, acks=all, min.insync.replicas=2, an "
            "idempotent producer of confluent-kafka, data folders in memory; sessions of the "
            f"default, 4 s, and 9 s with Kafka. A fault that lasts takes {options.hold:.0f} s."
        )

    words = [word for word in argv if word != _INSIDE]
    return Benchmark("availability", "availability", about).run(
        words, options, lambda folder: _measure(options, folder)
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
