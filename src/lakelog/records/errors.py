"""The errors of this package for malformed bytes."""

from __future__ import annotations


class CorruptRecord(ValueError):  # noqa: N818 - as KafkaError's codes are named
    """Bytes that are not a valid record batch; the text names the wrong part."""


class RecordsTooLarge(CorruptRecord):
    """The decompressed records exceed the caller's limit; they may be valid.

    Some codecs cannot distinguish this from damage.
    """
