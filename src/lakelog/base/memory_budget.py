"""One budget of memory for everything that clients make the broker hold.

Clients are not authenticated, so each kind of memory has a share with a limit. A byte is counted in
one share, for one owner, and that owner releases it. The shares only count. The code that takes
bytes of a share decides how to proceed when the share is used up:

    share      owners                                          used up
    received   receive buffers, batches copied out of them     owners wait (`RequestMemory`)
    waiting    requests without a response, by connection      the largest is closed (`SharedLimit`)
    unread     responses, by connection                        the largest is closed (`SharedLimit`)
    state      groups, transactional ids, fetch sessions       growth is rejected (`Account`)

Some owners estimate. Memory that exists already is counted even if it exceeds the share: the limit
decides only about more.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Generic, TypeVar

BYTES_MAX = 256 << 20
_OWNER_DIVISOR = 8

Owner = TypeVar("Owner")


def text_bytes(text: str | None) -> int:
    """Return an upper bound of the memory of a string, in bytes; 0 for None."""
    if text is None:
        return 0
    return 64 + (len(text) if text.isascii() else 4 * len(text))


class Share:
    """The bytes of one kind; `bytes_max` of 0 or less is no limit."""

    def __init__(self, bytes_max: int = BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.owner_max = bytes_max // _OWNER_DIVISOR
        """Limit for one group or one transactional id, in bytes."""
        self.used = 0
        self.leaving = 0
        """Bytes of `used` whose removal is decided but not yet committed to a log."""
        self.accounts: set[Account[Any]] = set()

    def has(self, more: int) -> bool:
        """Return whether `more` bytes fit."""
        return more <= 0 or not 0 < self.bytes_max < self.used - self.leaving + more

    @property
    def is_exceeded(self) -> bool:
        """Whether more than the limit is used."""
        return 0 < self.bytes_max < self.used

    def check(self) -> None:
        """Assert that each byte in use has an owner. Takes time for each owner."""
        held = sum(size for account in self.accounts for _, size in account)
        assert held == self.used, f"{self.used} bytes are counted, owners hold {held}"


class Account(Generic[Owner]):
    """The bytes of a share that one part of the broker has taken, by owner."""

    def __init__(self, share: Share) -> None:
        self.share = share
        self.total = 0
        """Bytes of all owners."""
        self._sizes: dict[Owner, int] = {}
        self._closed = False
        share.accounts.add(self)

    def __iter__(self) -> Iterator[tuple[Owner, int]]:
        """Iterate over the owners with bytes, and their bytes."""
        return iter(self._sizes.items())

    def add(self, owner: Owner, more: int) -> None:
        """Add `more` bytes to `owner`; a negative number releases bytes.

        Fails an assertion if `owner` releases more than it has.
        """
        # A request of an unloaded shard may still end; its bytes were released with the shard.
        if self._closed or not more:
            return
        size = self._sizes.get(owner, 0) + more
        assert size >= 0, f"{owner} released {-size} bytes more than it took"
        if size:
            self._sizes[owner] = size
        else:
            del self._sizes[owner]
        self.total += more
        self.share.used += more
        assert self.share.used >= self.total >= 0

    def of(self, owner: Owner) -> int:
        """Return the bytes of `owner`."""
        return self._sizes.get(owner, 0)

    def may_grow(self, owner: Owner, more: int) -> bool:
        """Return whether `more` bytes fit the share and the part of one owner."""
        if more <= 0:
            return True
        return self.of(owner) + more <= self.share.owner_max and self.share.has(more)

    def close(self) -> None:
        """Release all bytes and ignore later changes."""
        self._closed = True
        self.share.used -= self.total
        assert self.share.used >= 0
        self.share.accounts.discard(self)
        self.total = 0
        self._sizes.clear()


class MemoryBudget:
    """The shares of one broker.

    Args:
        requests_max: `queued.max.request.bytes`, for received and for waiting requests each.
        state_max: `lakelog.coordinator.state.max.bytes`.
        unread_max: bytes of responses that peers do not read.
    """

    def __init__(
        self, requests_max: int, state_max: int = BYTES_MAX, unread_max: int = BYTES_MAX
    ) -> None:
        self.received = Share(requests_max)
        self.waiting = Share(requests_max)
        self.unread = Share(unread_max)
        self.state = Share(state_max)
        self.shares = (self.received, self.waiting, self.unread, self.state)

    @property
    def used(self) -> int:
        """Bytes of all shares."""
        return sum(share.used for share in self.shares)

    def check(self) -> None:
        """Assert that each byte in use has an owner; see `Share.check`."""
        for share in self.shares:
            share.check()
