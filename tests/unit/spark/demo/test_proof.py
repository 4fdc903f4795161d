from __future__ import annotations

import pytest

from lakelog.spark.demo.proof import ProofError, Tally, _counted
from lakelog.spark.demo.report import Ledger


def test_digests_depend_on_order_and_boundaries() -> None:
    digests = set()
    for values in ([b"a", b"b"], [b"b", b"a"], [b"ab"], [b"", b"ab"], [None, b"ab"]):
        tally = Tally()
        for value in values:
            tally.add(value)
        digests.add(tally.digest)

    assert len(digests) == 5


def test_archive_and_rest_make_one_partition() -> None:
    found = _counted([(0, 0, b"a"), (0, 1, b"b"), (1, 0, b"c")], [(0, 2, b"d")])

    assert found.archived == {0: 2, 1: 1}
    assert found.live == {0: 1}


@pytest.mark.parametrize("offset", [0, 2])
def test_a_missing_or_repeated_offset_is_an_error(offset: int) -> None:
    with pytest.raises(ProofError, match=r"offset \d instead of"):
        _counted([(0, 0, b"a")], [(0, offset, b"b")])


def test_a_ledger_holds_only_if_every_reader_agrees() -> None:
    good = _counted([(0, 0, b"a")], [(0, 1, b"b")])
    changed = _counted([(0, 0, b"a")], [(0, 1, b"B")])
    short = _counted([(0, 0, b"a")], [])

    assert Ledger("t", {0: 2}, good.digests, {"x": good, "y": good}).holds(0)
    assert not Ledger("t", {0: 2}, good.digests, {"x": good, "y": changed}).holds(0)
    assert not Ledger("t", {0: 2}, good.digests, {"x": short, "y": good}).holds(0)
