from __future__ import annotations

import pytest

from lakelog.base.uuids import ZERO_UUID
from lakelog.storage.recovery.known_log import KnownLog
from storage_kit import TOPIC_ID

OTHER_ID = bytes(range(100, 116))
KNOWN = KnownLog(TOPIC_ID, 7, 3, 9, 5, ((0, 3), (4, 6)), ((3, 77),))


def test_the_entry_of_the_same_topic_is_kept() -> None:
    assert KNOWN.as_of(TOPIC_ID) == KNOWN


def test_an_entry_without_a_topic_is_of_the_topic_that_is_found() -> None:
    """Checkpoints of Apache Kafka have no topic ids."""
    assert KNOWN._replace(topic_id=ZERO_UUID).as_of(TOPIC_ID) == KNOWN


@pytest.mark.parametrize("known", [KNOWN, KNOWN._replace(aborted=None)])
def test_nothing_is_known_of_a_new_topic_with_an_old_name(known: KnownLog) -> None:
    assert not known.is_of(OTHER_ID)
    blank = known.as_of(OTHER_ID)
    assert (blank.topic_id, blank.recovery_point, blank.start) == (OTHER_ID, 0, 0)
    assert (blank.high_watermark, blank.cleaned, blank.epochs) == (-1, -1, ())
