from __future__ import annotations

from lakelog.storage.compaction.offset_map import DIGEST_SIZE, ENTRY_BYTES, OffsetMap, stored_key


def test_a_map_is_full_when_its_share_of_the_memory_is_used() -> None:
    offsets = OffsetMap(10 * ENTRY_BYTES, 0.5)
    for number in range(5):
        assert not offsets.is_full
        offsets.offsets[b"%d" % number] = number
    assert offsets.is_full


def test_the_smallest_map_has_one_key_so_that_each_pass_cleans_something() -> None:
    offsets = OffsetMap(1, 0.0)
    assert not offsets.is_full
    offsets.offsets[b"k"] = 1
    assert offsets.is_full


def test_a_key_takes_bounded_memory_and_is_not_mistaken_for_another() -> None:
    long_keys = [b"x" * DIGEST_SIZE, b"x" * (DIGEST_SIZE + 1), b"y" * (1 << 20)]
    digests = [stored_key(key) for key in long_keys]
    assert {len(digest) for digest in digests} == {DIGEST_SIZE}
    assert len(set(digests)) == len(long_keys)


def test_a_short_key_equals_no_digest() -> None:
    longest = b"k" * (DIGEST_SIZE - 1)
    assert stored_key(longest) == longest
    assert stored_key(b"") == b""
    digest = stored_key(b"long" * 20)
    assert stored_key(digest) != digest, "a key that looks like a digest is digested itself"
