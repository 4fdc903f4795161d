from __future__ import annotations

from lakelog.base.errors import ErrorCode
from lakelog.client.producer.verdict import Verdict, judge, maybe_written


def test_every_code_has_a_verdict() -> None:
    for code in ErrorCode:
        for is_first in (False, True):
            verdict = judge(code, is_first=is_first)
            assert not (verdict is Verdict.DONE and maybe_written(code))
