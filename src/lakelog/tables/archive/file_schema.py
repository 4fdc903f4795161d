"""The schema of the data files of a batch: that of the job, and typed columns of the values."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence

import pyarrow as pa

from lakelog.base.events import event
from lakelog.tables.archive.job import ArchiveJob
from lakelog.tables.registry.schemas import Schemas, schemas_of
from lakelog.tables.registry.values import registered_shapes
from lakelog.tables.topic.ranges import OffsetRange
from lakelog.tables.typed.sampling import BatchSource, sampled_shape
from lakelog.tables.typed.shapes import Shape

_log = logging.getLogger("lakelog.tables")


def file_schema(
    job: ArchiveJob, source: BatchSource, tasks: Iterable[Sequence[OffsetRange]]
) -> pa.Schema:
    """Return the schema for the files of a batch; add new fields of values to the table.

    Fields are inferred from samples of the ranges, or from the schemas that the samples name.
    Raises `ValueError` if the table has foreign columns of the same names,
    `TableReplacedError`, `RegistryUnavailableError`, `RegistryAccessError`, `KafkaError` and the
    errors of the catalog.
    """
    ranges = [each for ranges in tasks for each in ranges]
    if job.registry is not None:
        shapes = _registered(job, schemas_of(job.registry), source, ranges)
    elif job.is_json:
        shapes = [sampled_shape(source, ranges)]
    else:
        return job.schema
    from lakelog.tables.typed.columns import widen

    schema = job.schema
    for each in widen(job.address, shapes):
        schema = schema.append(each)
    return schema


def _registered(
    job: ArchiveJob, schemas: Schemas, source: BatchSource, ranges: Sequence[OffsetRange]
) -> list[Shape]:
    if job.schema_without_ids is not None:
        return [schemas.get(job.schema_without_ids).shape]
    return registered_shapes(schemas, source, ranges)


def add_unknown(job: ArchiveJob, shapes: Iterable[Shape]) -> None:
    """Add fields that tasks found beyond the samples to the table, for later batches.

    Errors are logged, not raised: the batch is already committed, and the fields will be found
    again.
    """
    seen = [each for each in shapes if each.fields]
    if not (job.is_json or job.registry) or not seen:
        return
    from lakelog.tables.typed.columns import widen

    try:
        widen(job.address, seen)
    except Exception as error:  # noqa: BLE001 - a concurrent commit, or a busy catalog or store
        _log.info(
            "new fields of %r are added later: %s",
            job.topic,
            error,
            extra=event("archive_fields_delayed", topic=job.topic),
        )
