from __future__ import annotations

import pickle

from lakelog.base.errors import ErrorCode
from lakelog.columns.encoding.errors import BadRowError


def test_a_bad_row_has_its_number_and_its_code_also_in_another_process() -> None:
    error = BadRowError(7, "no such partition", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for each in (error, pickle.loads(pickle.dumps(error))):
        assert str(each) == "row 7: no such partition"
        assert (each.row, each.code) == (7, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
