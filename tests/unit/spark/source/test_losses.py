from __future__ import annotations

import logging

import pytest

from lakelog.spark.source.losses import report_loss
from lakelog.tables.topic.errors import DataLossError


def test_a_loss_fails_the_query_and_names_the_option_that_accepts_it() -> None:
    with pytest.raises(DataLossError, match=r"^t-0 \[0, 5\)\. Set the option failOnDataLoss=false"):
        report_loss("t-0 [0, 5)", fail=True)


def test_an_accepted_loss_is_logged_with_its_offsets(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "lakelog.spark"):
        report_loss("t-0 [0, 5)", fail=False)
    assert caplog.messages == ["records are lost: t-0 [0, 5)"]
