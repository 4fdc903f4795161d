from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def test_a_session_leaves_interrupts_to_its_program(spark: SparkSession) -> None:
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
