"""Clients of a cluster under faults, judged by Jepsen's rules for Kafka.

Three brokers, each on a host of its own in a network namespace, are killed, paused and cut off,
and so are the servers of their ZooKeeper ensemble. A line is printed after each healing, and a
summary at the end. The history of a failed run remains. Runs of one seed have the same faults, as
far as leaders and times are the same. It needs root or unprivileged user namespaces.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import time
import traceback
from pathlib import Path

from torture.hosts import enter_own_network
from torture.plan import PLANS
from torture.run import TortureRun, summary
from torture.servers import EMBEDDED, ZOOKEEPER


def main() -> int:
    """Return 0 if there was no anomaly. Otherwise the folder of the run remains."""
    parser = argparse.ArgumentParser(prog="torture", description=__doc__)
    parser.add_argument("--store", choices=(EMBEDDED, ZOOKEEPER), default=ZOOKEEPER)
    parser.add_argument("--plan", choices=PLANS, default="cluster")
    parser.add_argument("--seconds", type=float, default=480.0)
    parser.add_argument("--faults", type=int, default=100_000, help="end after so many")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, default=Path("build/torture"))
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if not options.inside:
        arguments = [*sys.argv[1:], "--seed", str(options.seed)]
        enter_own_network([sys.executable, "-m", "torture", *arguments, "--inside"])
    name = f"{options.plan}-{options.store}-{options.seed}"
    # An end of this process ends its servers and clients too, which write to the folder.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    folder = options.folder.absolute() / name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    print(f"folder {folder}", flush=True)
    plan = PLANS[options.plan]
    run = TortureRun(folder, plan, options.store, options.seconds, options.faults, options.seed)
    failure = ""
    try:
        history = run.run()
    except AssertionError as error:
        failure, history = f"The run ended early: {error!r}", run.history()
        traceback.print_exc()
    anomalies = run.judge(history)
    print("\n".join(summary(history, anomalies)))
    if failure or anomalies:
        print(f"{failure}\nThe history is in {folder}/history.jsonl, the logs beside it.")
        return 1
    shutil.rmtree(folder)
    return 0


sys.exit(main())
