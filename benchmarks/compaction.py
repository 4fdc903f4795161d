"""Produce latency while a log is compacted beside it, in one run with the latency without.

A topic is filled with keyed records, 1 KB requests are measured in windows, then compaction of the
filled topic is switched on and the same is measured until it is done. Nothing here judges but the
exit status: 1 if the median p99 of the windows is more than three times as large.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

_PROJECT = Path(__file__).parent.parent
sys.path.insert(0, str(_PROJECT / "tests"))

from brokers import BrokerError, LakelogBroker  # noqa: E402
from load import Case, LoadGenerator, Measurement  # noqa: E402

from lakelog.client.admin import Admin, ResourceType  # noqa: E402
from lakelog.records.builder import BatchBuilder  # noqa: E402
from lakelog.storage.checkpoint import CLEANER_OFFSETS, decode_offsets  # noqa: E402
from wire_client import WireClient, produce  # noqa: E402

_TOPIC = "compacted"
_SMALL = Case("produce 1 KB", "produce", "latency", 1024, 100, requests=8000)
_BATCH_RECORDS = 900
_VALUE = 1024
_DISTINCT_BATCHES = 64
_RATIO_MAX = 3.0
_WAIT_S = 600.0


class CompactingBroker(LakelogBroker):
    def command(self) -> list[str]:
        return [*super().command(), "--set", "log.cleaner.backoff.ms=200"]


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="benchmarks/compaction.py", description=__doc__)
    parser.add_argument(
        "--megabytes", type=int, default=1074, help="size of the compacted data, in 10^6 B"
    )
    parser.add_argument("--windows", type=int, default=6, help="measured without compaction")
    return parser.parse_args(argv)


def _fill(broker: CompactingBroker, megabytes: int) -> None:
    """Records of 1 KB, each key some sixteen times when it is 1 GB."""
    rng = random.Random(1)
    batches = []
    for _ in range(_DISTINCT_BATCHES):
        builder = BatchBuilder()
        for _ in range(_BATCH_RECORDS):
            key = b"key-%012d" % rng.randrange(_DISTINCT_BATCHES * _BATCH_RECORDS)
            builder.append(1_700_000_000_000, key, rng.randbytes(_VALUE))
        batches.append(bytes(builder.build()))
    with WireClient(f"127.0.0.1:{broker.port}") as wire:
        for number in range(megabytes * 1_000_000 // len(batches[0])):
            answer = produce(wire, _TOPIC, batches[number % len(batches)])
            if answer.error_code:
                raise BrokerError(f"filling: error {answer.error_code}")


def _close_segment(broker: CompactingBroker) -> None:
    """A record later than all others ends the active segment, which would not be compacted."""
    builder = BatchBuilder()
    builder.append(1_700_000_001_000, b"last", b"")
    with WireClient(f"127.0.0.1:{broker.port}") as wire:
        if code := produce(wire, _TOPIC, bytes(builder.build())).error_code:
            raise BrokerError(f"closing the segment: error {code}")


def _cleaned(broker: CompactingBroker) -> bool:
    path = broker.folder / "data" / CLEANER_OFFSETS
    return path.exists() and decode_offsets(path.read_bytes()).get((_TOPIC, 0), 0) > 0


def _show(name: str, windows: list[Measurement]) -> float:
    p99 = statistics.median(window.p99_ms for window in windows)
    worst = max(window.p99_ms for window in windows)
    p50 = statistics.median(window.p50_ms for window in windows)
    rate = statistics.median(window.requests_per_s for window in windows)
    print(
        f"{name:20} {len(windows):3} windows   p50 {p50:.3f} ms   "
        f"p99 {p99:.3f} ms (worst {worst:.3f})   {rate:,.0f} requests/s",
        flush=True,
    )
    return p99


def main(argv: Sequence[str]) -> int:
    options = _arguments(argv)
    load = LoadGenerator(_PROJECT / "build")
    with tempfile.TemporaryDirectory() as scratch:
        broker = CompactingBroker(Path(scratch) / "lakelog")
        broker.prepare()
        broker.start()
        try:
            return _measure(broker, load, options)
        finally:
            broker.stop()


def _measure(broker: CompactingBroker, load: LoadGenerator, options: argparse.Namespace) -> int:
    address = f"127.0.0.1:{broker.port}"
    with Admin(address) as admin:
        admin.topics.create(_TOPIC, configs={"segment.bytes": str(256 << 20)})
        _fill(broker, options.megabytes)
        load.create_topic(broker, _SMALL.topic, 1)
        load.measure(broker, _SMALL)
        without = [load.measure(broker, _SMALL) for _ in range(options.windows)]
        quiet = _show("without compaction", without)
        changes = {"cleanup.policy": "compact", "segment.ms": "1"}
        admin.configs.alter(ResourceType.TOPIC, _TOPIC, changes)
    _close_segment(broker)
    started = time.monotonic()
    during: list[Measurement] = []
    while not _cleaned(broker):
        if time.monotonic() - started > _WAIT_S:
            raise BrokerError("the log was not compacted")
        during.append(load.measure(broker, _SMALL))
    if not during:
        raise BrokerError("compacted before a window was measured: give it more --megabytes")
    busy = _show("while compacting", during)
    seconds = time.monotonic() - started
    verdict = "within" if busy <= _RATIO_MAX * quiet else "beyond"
    print(
        f"{options.megabytes} MB in {seconds:.1f} s; "
        f"p99 {busy / quiet:.2f} times as large, {verdict} {_RATIO_MAX:g}"
    )
    return int(verdict == "beyond")


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokerError as error:
        sys.exit(str(error))
