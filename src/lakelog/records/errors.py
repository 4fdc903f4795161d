"""What every module of this package raises for bytes that are not what they claim to be."""

from __future__ import annotations


class CorruptRecord(ValueError):  # noqa: N818 - as KafkaError's codes are named
    """Bytes that cannot be a record batch; the text says which part of it is wrong."""


class RecordsTooLarge(CorruptRecord):
    """They take more memory, decompressed, than whoever asks has for them; nothing need be wrong.

    Of some codecs it cannot be told from damage.
    """
