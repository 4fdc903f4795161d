"""The work of one task: read ranges of offsets, write one Parquet file.

Records that cannot be rows of the table end the task, are left out, or go to a second file, for
dead letters. Rows are written in groups of about 32 MiB: ranges of any size take bounded memory.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import pyarrow as pa

from lakelog.tables.archive.letter_file import LetterFile
from lakelog.tables.archive.partitions import lost_before
from lakelog.tables.archive.refusals import KEY, OnBadRecord, Refusals, Refused, stop
from lakelog.tables.archive.row_files import PARTITIONS_MAX, RowFiles
from lakelog.tables.archive.sieve import Sieve
from lakelog.tables.iceberg.partition_terms import PartitionTerm
from lakelog.tables.registry.client import RegistryAddress
from lakelog.tables.registry.schemas import SubjectVersion, schemas_of
from lakelog.tables.registry.values import RegistryFitter
from lakelog.tables.topic.client import TopicClient
from lakelog.tables.topic.errors import DataLossError, RecordsRemovedError
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.topic.reading import OnLoss, Reading
from lakelog.tables.typed.rows import TypedRows, data_type, untyped
from lakelog.tables.typed.shapes import Shape

_WAY_ON = (
    f"Set the topic's key {KEY} to dead-letter or skip, or repeat with --errors: the record is "
    "then a row without fields, and its column rescued has the reason"
)


@dataclass(frozen=True, slots=True)
class Written:
    """The result of a task.

    paths: the URIs of the files; none if the ranges had no rows. skipped: offsets that were lost.
    unknown: the shapes of values that did not fit the typed columns. refusals: records that
    cannot be rows. letters: the URI of their file; `None` without any.
    """

    paths: tuple[str, ...]
    rows: int
    skipped: list[OffsetRange]
    unknown: list[Shape] = field(default_factory=list)
    refusals: Refusals = field(default_factory=Refusals)
    letters: str | None = None


def write_ranges(
    bootstrap: str,
    ranges: Sequence[OffsetRange],
    schema: pa.Schema,
    path: str,
    catalog: Mapping[str, str],
    *,
    skip_lost: bool,
    errors: OnBadRecord = OnBadRecord.STOP,
    letters_path: str = "",
    terms: Sequence[PartitionTerm] = (),
    files_max: int = PARTITIONS_MAX,
    registry: RegistryAddress | None = None,
    without_ids: SubjectVersion | None = None,
) -> Written:
    """Write all records of `ranges` to a new file at the URI `path`, or to several of a prefix.

    catalog: PyIceberg's properties, for a remote path. errors: how to treat records that cannot
    be rows. letters_path: the URI of the file for dead letters. terms, files_max: of a
    partitioned table, the terms of its spec and the limit of files. registry: has the schemas of
    the values; without one they are JSON. without_ids: the schema of values that do not name
    theirs.

    Raises `DataLossError` if the log no longer holds a whole range, unless `skip_lost` is set and
    retention removed the records; `BadRecordError` for a record that cannot be a row, if `errors`
    is STOP; `TooManyPartitionsError`; `RegistryUnavailableError` and `RegistryAccessError`; and
    `KafkaError`. The files are removed after any error.
    """
    files = RowFiles(path, schema, catalog, terms, files_max)
    letters = LetterFile(letters_path, catalog)
    refusals = Refusals()
    refuse = stop if errors is OnBadRecord.STOP else partial(_note, refusals, errors, letters)
    rows = 0
    skipped: list[OffsetRange] = []
    typed = TypedRows(schema, _fitter(registry, schema, errors, without_ids))
    sieve = Sieve(untyped(schema), refuse)
    on_loss = policy(skipped if skip_lost else None)
    try:
        # The sieve decides about damaged batches.
        with TopicClient(bootstrap, client_id="lakelog-archive", keep_damaged=True) as client:
            for each in ranges:
                rows += _copy(Reading(client, each, on_loss), sieve, typed, files)
        paths, letters_written = files.close(), letters.close()
    except BaseException:
        files.remove()
        letters.remove()
        raise
    return Written(paths, rows, skipped, typed.unknown, refusals, letters_written)


def _fitter(
    registry: RegistryAddress | None,
    schema: pa.Schema,
    errors: OnBadRecord,
    without_ids: SubjectVersion | None,
) -> RegistryFitter | None:
    if registry is None:
        return None
    is_strict = errors is OnBadRecord.STOP
    return RegistryFitter(
        schemas_of(registry),
        data_type(schema),
        is_strict=is_strict,
        way_on=_WAY_ON,
        without_ids=without_ids,
    )


def _note(refusals: Refusals, errors: OnBadRecord, letters: LetterFile, refused: Refused) -> None:
    refusals.add(refused, errors)
    if errors is OnBadRecord.DEAD_LETTER:
        letters.add(refused)


def _copy(reading: Reading, sieve: Sieve, typed: TypedRows, files: RowFiles) -> int:
    count = 0
    while reading.find_remaining():
        for batch in sieve.convert(reading.remaining, reading.batches()):
            count += batch.num_rows
            files.add(typed.complete(batch))
    files.end_range()
    return count


def policy(skipped: list[OffsetRange] | None) -> OnLoss:
    """Return the callback for lost offsets: it raises an error, or adds them to `skipped`.

    Only offsets that retention removed can be skipped. After other losses the job plans the batch
    again. The returned function raises `DataLossError`.
    """

    def on_loss(lost: OffsetRange, error: DataLossError) -> None:
        if not isinstance(error, RecordsRemovedError):
            raise error
        if skipped is None:
            raise DataLossError(lost_before([str(lost)]))
        skipped.append(lost)

    return on_loss
