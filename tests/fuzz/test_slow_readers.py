"""Slow readers of large fetches, as many as `--fuzz-stalled`, beside a client that is quick."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from statistics import median

import pytest

from broker_process import BrokerProcess
from fuzz.good_client import GoodClient, allow_files
from fuzz.slow_readers import TOPIC, slow_readers
from wire_client import WireClient, batch_of, create_topic, produce

CALLS = 100
LIMIT_S = 0.25
_BATCHES = 60
_MANY = 1_000


def test_a_good_client_is_served_beside_slow_readers(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    count: int = request.config.getoption("--fuzz-stalled")
    allow_files(count * 2 + 200)
    with BrokerProcess(tmp_path / "data") as broker, closing(GoodClient(broker.bootstrap)) as good:
        with WireClient(broker.bootstrap) as client:
            create_topic(client, TOPIC)
            for _ in range(_BATCHES):
                assert produce(client, TOPIC, batch_of(bytes(1_000_000))).error_code == 0
        good.round(CALLS)
        alone = median(good.latencies_s)
        with slow_readers(broker.address, count):
            good.round(CALLS)
            beside, longest = median(good.latencies_s), max(good.latencies_s)
            kernel = _kernel_bytes()
        print(f"\n{count} slow readers: a produce and a fetch take {alone * 1000:.2f} ms alone,")
        print(f"  {beside * 1000:.2f} ms beside them (medians), {longest * 1000:.0f} ms at most;")
        print(f"  {kernel >> 20} MiB in the sockets of this machine")
        assert beside < LIMIT_S or count < _MANY
        broker.stop()


def _kernel_bytes() -> int:
    """Memory of all TCP sockets of this machine."""
    for line in Path("/proc/net/sockstat").read_text().splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * 4096
    return 0
