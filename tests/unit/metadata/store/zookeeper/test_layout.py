"""The data of nodes: read back as written, and refused when foreign."""

from __future__ import annotations

import pytest

from lakelog.metadata.errors import MetadataCorrupt, MetadataUnsupported
from lakelog.metadata.store.api import BATCH_BYTES_MAX, ControllerTerm
from lakelog.metadata.store.zookeeper.layout import (
    NO_TERM,
    Pointer,
    StoredEntry,
    Tail,
    Term,
    decode_format,
    encode_format,
)

_NODE_BYTES_MAX = 0xFFFFF
"""The default of ZooKeeper's `jute.maxbuffer`."""


def test_data_of_every_node_is_read_back() -> None:
    term = Term(7, 8, b"i" * 16, 3)
    assert Term.decode("/x", term.encode(), 3) == term
    tail = Tail(2**40, b"c" * 16, 5)
    assert Tail.decode("/x", tail.encode(), 5) == tail
    entry = StoredEntry(4, b"w" * 16, 9, b"c" * 16, b"payload")
    assert StoredEntry.decode("/x", entry.encode()) == entry
    pointer = Pointer(90, 10, 5, 3, 2**32 - 1, b"c" * 16, "0000-4", 6)
    assert Pointer.decode("/x", pointer.encode(), 6) == pointer
    assert decode_format("/x", encode_format(b"l" * 16)) == b"l" * 16


def test_a_term_has_an_incarnation_only_with_a_holder() -> None:
    assert Term(7, 8, b"i" * 16, 3).public() == ControllerTerm(7, 8, b"i" * 16)
    assert NO_TERM.public().incarnation_id == b""


def test_the_largest_entry_fits_into_a_request() -> None:
    entry = StoredEntry(1, b"w" * 16, 1, b"c" * 16, bytes(BATCH_BYTES_MAX))
    assert len(entry.encode()) < _NODE_BYTES_MAX - 10_000


def test_nodes_of_other_programs_and_of_newer_versions_are_refused() -> None:
    own = encode_format(b"l" * 16)
    with pytest.raises(MetadataCorrupt, match="another program"):
        decode_format("/x", b"KAFKA" + own[5:])
    with pytest.raises(MetadataUnsupported, match="format 9"):
        decode_format("/x", own[:11] + b"\x09" + own[12:])
    with pytest.raises(MetadataCorrupt, match="/x in ZooKeeper has 3 B"):
        Tail.decode("/x", b"abc", 0)
