"""An archive job without Spark: its planner, its tasks and its commits, one batch at a time."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field, replace
from pathlib import Path

from lakelog.spark.archive.stream import Archived, batch_of
from lakelog.tables.archive.commit import CommitOutcome, commit_batch, state_of
from lakelog.tables.archive.files import file_schema, write_ranges
from lakelog.tables.archive.planner import BatchPlanner
from lakelog.tables.archive.progress import ArchiveJob, Extent, merge_ranges
from lakelog.tables.archive.publication import Publication, open_job
from lakelog.tables.archive.reconcile import Reconciler
from lakelog.tables.iceberg.warehouse import Warehouse, open_warehouse
from lakelog.tables.topic.client import TopicClient


@dataclass
class Archiver:
    """The archive of one topic into a folder.

    is_alone: no other job archives the topic at the same time. skip_lost: as the option
    `--skip-lost`.
    """

    bootstrap: str
    topic: str
    folder: Path
    batch_bytes: int = 1 << 20
    is_alone: bool = True
    skip_lost: bool = False
    job: ArchiveJob = field(init=False)
    place: Warehouse = field(init=False)
    batches: int = 0

    def __post_init__(self) -> None:
        self.place = open_warehouse(str(self.folder))
        self.job = open_job(
            self.bootstrap,
            self.topic,
            self.place,
            self.topic,
            batch_bytes=self.batch_bytes,
            file_bytes=1000,
            skip_lost=self.skip_lost,
            null_timestamps=False,
        )
        self.publication = Publication(self.bootstrap, self.topic, self.topic, self.place, print)
        self.publication.claim()
        with TopicClient(self.bootstrap, client_id="test") as client:
            Reconciler(self.job, None, print).run(client)

    def run(self, *, publish: bool = True) -> dict[int, int]:
        """Archive up to the present end in one commit; return the table's ends."""
        extents: dict[int, Extent] = dict(state_extents(self.job))
        job = replace(self.job, extents=extents)
        with TopicClient(self.bootstrap, client_id="test") as client:
            planner = BatchPlanner(job, client)
            begin = planner.table_end()
            end = planner.batch_end(begin, None)
            tasks = [] if end is begin else planner.tasks(begin, end)
            schema = file_schema(job, client, tasks)
        done = []
        for ranges in tasks:
            written = write_ranges(job, ranges, schema, f"{uuid.uuid4().hex}.parquet")
            done.append(Archived("test", list(ranges), written))
        if tasks:
            merged = merge_ranges(each for ranges in tasks for each in ranges)
            outcome = commit_batch(job.address, batch_of(job, done, self.batches, merged))
            assert outcome is CommitOutcome.APPENDED or not self.is_alone
            self.batches += 1
        ends = dict(state_of(job).ends)
        if publish:
            self.publication.publish(ends)
        return ends


def state_extents(job: ArchiveJob) -> dict[int, Extent]:
    from lakelog.tables.archive.progress import read_progress

    return dict(read_progress(job.address.load().properties, job.topic_id).extents)
