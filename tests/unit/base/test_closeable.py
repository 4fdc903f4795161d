from __future__ import annotations

import pytest

from lakelog.base.closeable import Closeable


class Door(Closeable):
    is_closed = False

    def close(self) -> None:
        self.is_closed = True


def test_a_block_is_given_the_object_and_closes_it() -> None:
    door = Door()
    with door as entered:
        assert entered is door
        assert not door.is_closed
    assert door.is_closed


def test_an_error_of_the_block_closes_it_and_is_raised() -> None:
    door = Door()
    with pytest.raises(ValueError, match="in the block"), door:
        raise ValueError("in the block")
    assert door.is_closed
