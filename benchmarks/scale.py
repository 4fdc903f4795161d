"""How lakelog and Apache Kafka bear it when things grow: partitions, connections, logs.

Both run within 16,000 descriptors. Nothing here judges: it prints what it measured.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

import scale_partitions  # noqa: E402
from brokers import Broker, BrokerError, KafkaBroker, LakelogBroker  # noqa: E402
from report import environment  # noqa: E402
from scale_table import Table  # noqa: E402

from kafka_jars import JavaMissingError  # noqa: E402

_DESCRIPTORS = 16_000
_BROKERS: dict[str, type[Broker]] = {"lakelog": LakelogBroker, "kafka": KafkaBroker}
_PARTS = ("partitions",)


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/scale.py", description=__doc__)
    parser.add_argument("--only", choices=_PARTS, help="measure this alone")
    parser.add_argument("--broker", choices=_BROKERS, help="measure this one alone")
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--topics", type=int, default=100)
    return parser.parse_args(argv)


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _brokers(options: argparse.Namespace, folder: Path) -> list[Broker]:
    kinds = [_BROKERS[options.broker]] if options.broker else list(_BROKERS.values())
    brokers = [kind(folder / kind.name) for kind in kinds]
    for broker in brokers:
        broker.prepare()
    return brokers


def _measure(part: str, options: argparse.Namespace, folder: Path) -> list[Table]:
    brokers = _brokers(options, folder)
    return [scale_partitions.measure(brokers, options.partitions, options.topics, _note)]


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_DESCRIPTORS, _DESCRIPTORS))
    tables = []
    print(environment())
    for part in [options.only] if options.only else _PARTS:
        folder = Path(tempfile.mkdtemp(prefix="lakelog-scale-"))
        try:
            found = _measure(part, options, folder)
        except (BrokerError, JavaMissingError, OSError) as error:
            _note(f"scale: {error}")
            return 1
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for table in found:
            table.show()
        tables += found
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
