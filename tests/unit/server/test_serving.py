"""A broker in this process, from its start to a signal."""

from __future__ import annotations

import gc
import os
import signal
from pathlib import Path

from lakelog.base.config.broker_config import BrokerConfig
from lakelog.server.options import ReadyInfo, ServeOptions
from lakelog.server.serving import serve


def test_the_collector_skips_objects_of_the_start(tmp_path: Path) -> None:
    frozen: list[int] = []

    def ready(info: ReadyInfo) -> None:
        frozen.append(gc.get_freeze_count())
        os.kill(os.getpid(), signal.SIGTERM)

    gc.unfreeze()
    try:
        options = ServeOptions(tmp_path, BrokerConfig({}), "127.0.0.1:0", ready=ready)
        assert serve(options) == 0
        assert frozen[0] > 10_000
    finally:
        gc.unfreeze()
        gc.collect()
        gc.freeze()  # as the tests before found it
