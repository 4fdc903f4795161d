from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn, cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.io.pyarrow import PyArrowFileIO

from lakelog.client.admin.api import Admin
from lakelog.tables.archive.commit import commit_batch
from lakelog.tables.archive.dead_letters import dead_letters_of, open_dead_letters
from lakelog.tables.archive.location import TableLocation, find_locations
from lakelog.tables.iceberg.address import TableAddress, TableReplacedError
from lakelog.tables.iceberg.table import ensure_table, spec_text
from lakelog.tables.iceberg.warehouse import open_warehouse
from lakelog.tables.topic.client import TopicClient, TopicMeta
from lakelog.tables.topic.errors import ArchiveUnreadableError
from lakelog.tables.topic.offsets import TopicPartition
from lakelog.tables.upkeep import ownership
from lakelog.tables.upkeep.ownership import (
    PartitionOverview,
    check_droppable,
    create,
    drop,
    is_unfinished,
    named_locations,
    overview,
    remove,
    stored_locations,
)
from unit.tables.archive_log import Log
from unit.tables.archive_table import TOPIC_ID, files, folder, new_table, write_batch
from unit.tables.compacted.kit import Put, Tables
from unit.tables.hybrid.kit import archive_of


class Topics(Log):
    """A cluster of the topics `orders` and `sales` with their keys."""

    def __init__(self) -> None:
        super().__init__({0: 5})
        self.topic_id = TOPIC_ID
        self.keys_of: dict[str, dict[str, str | None]] = {"orders": {}, "sales": {}}

    def topics(self) -> dict[str, TopicMeta]:
        return self.describe(self.keys_of)

    def configs(
        self, names: Iterable[str], keys: Collection[str]
    ) -> dict[str, dict[str, str | None]]:
        return {name: self.keys_of[name] for name in names}


def client(topics: Topics | None = None) -> TopicClient:
    return cast("TopicClient", topics or Topics())


def place_to_drop(found: TopicClient, topic: str) -> TableLocation | None:
    """The place that the keys name, if the table may be dropped for the topic."""
    location = find_locations(found, [topic], also_disabled=True).get(topic)
    if location is not None:
        check_droppable(found, topic, location)
    return location


class Cluster:
    """A stand-in for `Admin` with the keys of one topic; its groups cannot be deleted."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.configs = SimpleNamespace(
            alter=lambda _kind, _name, values: self.values.update(values)
        )


def test_a_topic_gets_a_table_and_loses_it(tmp_path: Path) -> None:
    cluster = Cluster()
    admin, warehouse = cast("Admin", cluster), open_warehouse(str(tmp_path))
    address = create(admin, client(), "orders", warehouse, "sales")
    assert cluster.values == {
        "table.enable": "true",
        "table.name": "sales",
        "table.warehouse": str(tmp_path),
        "table.catalog": "",
    }
    assert create(admin, client(), "orders", warehouse, "sales") == address, "it may be repeated"
    commit_batch(address, write_batch(address, 0, 3))
    assert files(address) == 1

    assert drop(admin, "orders", address, purge=True) >= 1
    assert set(cluster.values.values()) == {None}
    assert not address.exists()
    assert not list(tmp_path.rglob("*.parquet"))
    assert drop(admin, "orders", address, purge=True) == 0, "it may be repeated"


def test_the_table_of_newest_records_is_dropped_too(tmp_path: Path) -> None:
    cluster = Cluster()
    admin, warehouse = cast("Admin", cluster), open_warehouse(str(tmp_path))
    address = create(admin, client(), "orders", warehouse, "orders", compacted=True)
    assert cluster.values["table.latest"] == "true"
    compacted = TableAddress(address.catalog, ("lakelog", "orders_latest"))
    ensure_table(compacted)
    drop(admin, "orders", address, purge=True, compacted=compacted)
    assert not compacted.exists()
    assert set(cluster.values.values()) == {None}


def test_a_refresh_during_a_drop_does_not_create_the_table_again(
    address: TableAddress, monkeypatch: pytest.MonkeyPatch
) -> None:
    tables = Tables(address)
    tables.append(Put(b"a", b"1"))
    tables.refresh()
    dropped = ownership.remove

    def drop_and_refresh(each: TableAddress, *, purge: bool) -> int:
        done = dropped(each, purge=purge)
        with suppress(ArchiveUnreadableError, TableReplacedError):
            tables.refresh()
        return done

    monkeypatch.setattr(ownership, "remove", drop_and_refresh)
    compacted = tables.place.address
    drop(cast("Admin", Cluster()), "orders", address, purge=True, compacted=compacted)
    assert not compacted.exists()


@pytest.mark.parametrize("purge", [True, False])
def test_a_drop_that_fails_is_completed_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, purge: bool
) -> None:
    cluster, topics = Cluster(), Topics()
    topics.keys_of["orders"] = cluster.values
    admin, warehouse = cast("Admin", cluster), open_warehouse(str(tmp_path))
    address = create(admin, client(topics), "orders", warehouse, "sold", compacted=True)
    open_dead_letters(address, TOPIC_ID)
    compacted = TableAddress(address.catalog, ("lakelog", "sold_latest"))
    ensure_table(compacted)
    found: TableLocation | None = None
    real, tables = ownership.remove, [dead_letters_of(address), address, compacted]
    for failing in (each.identifier for each in tables):

        def remove(each: TableAddress, *, purge: bool, failing: tuple[str, str] = failing) -> int:
            if each.identifier == failing:
                raise PermissionError("not in this folder")
            return real(each, purge=purge)

        with monkeypatch.context() as patch:
            patch.setattr(ownership, "remove", remove)
            with pytest.raises(PermissionError):
                drop(admin, "orders", address, purge=purge, compacted=compacted)
        assert cluster.values["table.enable"] is None
        found = place_to_drop(client(topics), "orders")
        assert found is not None
        assert found.address.identifier == address.identifier

    assert found is not None
    deleted = drop(admin, "orders", found.address, purge=purge, compacted=compacted)
    assert (deleted > 0) == purge
    assert [each.exists() for each in tables] == [False] * 3
    assert set(cluster.values.values()) == {None}
    assert place_to_drop(client(topics), "orders") is None


def test_dead_letters_whose_files_are_half_deleted_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    admin = cast("Admin", Cluster())
    address = create(admin, client(), "orders", open_warehouse(str(tmp_path)), "orders")
    open_dead_letters(address, TOPIC_ID)
    (tmp_path / "lakelog" / "orders_dead_letters" / "orphan.parquet").touch()

    def delete(*_: object) -> NoReturn:
        raise PermissionError

    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "delete", delete)
        with pytest.raises(PermissionError):
            drop(admin, "orders", address, purge=True)
    drop(admin, "orders", address, purge=True)
    assert not [*tmp_path.rglob("*.json"), *tmp_path.rglob("*.parquet")]


def test_a_disabled_topic_names_a_table_to_drop_while_it_has_no_other_owner(
    tmp_path: Path,
) -> None:
    cluster, topics, warehouse = Cluster(), Topics(), open_warehouse(str(tmp_path))
    admin = cast("Admin", cluster)
    address = create(admin, client(topics), "orders", warehouse, "shared")
    enabled = dict(cluster.values)
    topics.keys_of["orders"] = enabled | {"table.enable": "false"}
    found = place_to_drop(client(topics), "orders")
    assert found is not None
    assert found.address.identifier == address.identifier

    topics.keys_of["sales"] = enabled
    with pytest.raises(ValueError, match=r"lakelog\.shared belongs to topic 'sales'"):
        place_to_drop(client(topics), "orders")


@pytest.mark.parametrize("is_enabled", [True, False])
def test_a_table_with_rows_is_dropped_for_their_topic_only(
    tmp_path: Path, is_enabled: bool
) -> None:
    cluster, topics, warehouse = Cluster(), Topics(), open_warehouse(str(tmp_path))
    address = create(cast("Admin", cluster), client(topics), "orders", warehouse, "shared")
    commit_batch(address, write_batch(address, 0, 3))
    keys = cluster.values | {"table.enable": str(is_enabled).lower()}
    topics.keys_of = {"orders": dict(keys), "sales": dict(keys)}
    found = place_to_drop(client(topics), "orders")
    assert found is not None
    assert found.address.identifier == address.identifier

    topics.topic_id = "another"
    with pytest.raises(ValueError, match=r"lakelog\.shared has rows of another topic"):
        place_to_drop(client(topics), "sales")


def test_a_drop_without_the_catalog_keeps_the_keys(tmp_path: Path) -> None:
    cluster, away = Cluster(), tmp_path / "away"
    admin, warehouse = cast("Admin", cluster), open_warehouse(str(tmp_path / "warehouse"))
    address = create(admin, client(), "orders", warehouse, "orders")
    keys = dict(cluster.values)
    (tmp_path / "warehouse").rename(away)
    with pytest.raises(FileNotFoundError, match=r"catalog\.db does not exist on this host: mount"):
        drop(admin, "orders", address, purge=True)
    assert cluster.values == keys
    assert not (tmp_path / "warehouse").exists()


def test_a_topic_with_the_name_of_dead_letters_keeps_its_table(tmp_path: Path) -> None:
    admin, warehouse = cast("Admin", Cluster()), open_warehouse(str(tmp_path))
    address = create(admin, client(), "orders", warehouse, "orders")
    other = create(admin, client(), "sales", warehouse, "orders_dead_letters")
    commit_batch(other, write_batch(other, 0, 3))

    drop(admin, "orders", address, purge=True)
    assert not address.exists()
    assert files(other) == 1


def test_the_table_of_another_topic_is_not_taken(tmp_path: Path) -> None:
    cluster, topics, warehouse = Cluster(), Topics(), open_warehouse(str(tmp_path))
    admin = cast("Admin", cluster)
    address = create(admin, client(topics), "orders", warehouse, "shared")
    topics.keys_of["orders"] = dict(cluster.values)
    cluster.values.clear()
    with pytest.raises(ValueError, match=r"lakelog\.shared belongs to topic 'orders': .*--name"):
        create(admin, client(topics), "sales", warehouse, "shared")
    assert create(admin, client(topics), "orders", warehouse, "shared") == address

    topics.keys_of["orders"] = {}
    cluster.values.clear()
    commit_batch(address, write_batch(address, 0, 3))
    topics.topic_id = "another"
    with pytest.raises(ValueError, match=r"has rows of another topic, .* an earlier 'sales'"):
        create(admin, client(topics), "sales", warehouse, "shared")
    assert cluster.values == {}


def test_the_drop_of_a_table_that_the_keys_do_not_name_keeps_the_keys(tmp_path: Path) -> None:
    cluster, warehouse = Cluster(), open_warehouse(str(tmp_path))
    admin = cast("Admin", cluster)
    address = create(admin, client(), "orders", warehouse, "other")
    create(admin, client(), "orders", warehouse, "orders")
    keys = dict(cluster.values)
    assert drop(admin, "orders", address, purge=True, is_named=False) >= 1
    assert not address.exists()
    assert cluster.values == keys


@pytest.mark.parametrize("name", ["../up", "..", ".", "a/b", "", "a b"])
def test_a_table_stays_in_its_warehouse(tmp_path: Path, name: str) -> None:
    warehouse = open_warehouse(str(tmp_path / "house"))
    with pytest.raises(ValueError, match="is not a name of a table"):
        create(cast("Admin", Cluster()), client(), "orders", warehouse, name)
    assert not list(tmp_path.rglob("metadata"))


def test_without_purge_the_files_stay(tmp_path: Path) -> None:
    admin = cast("Admin", Cluster())
    address = create(admin, client(), "orders", open_warehouse(str(tmp_path)), "orders")
    commit_batch(address, write_batch(address, 0, 3))
    assert drop(admin, "orders", address, purge=False) == 0
    kept = list(tmp_path.rglob("*.parquet"))
    assert kept
    # The cleanup of a new table of this name would remove them.
    new = create(admin, client(), "orders", open_warehouse(str(tmp_path)), "orders")
    assert not list(folder(new).rglob("*.parquet"))
    assert folder(new).parent == kept[0].parents[2]


def test_a_table_is_created_with_the_partitions_of_the_topics_key(tmp_path: Path) -> None:
    cluster, topics = Cluster(), Topics()
    admin, warehouse = cast("Admin", cluster), open_warehouse(str(tmp_path))
    topics.keys_of["orders"]["table.partition_by"] = "day(timestamp)"
    address = create(admin, client(topics), "orders", warehouse, "orders")
    assert spec_text(address.load()) == "day(timestamp)"
    other = create(admin, client(topics), "orders", warehouse, "other", "partition")
    assert spec_text(other.load()) == cluster.values["table.partition_by"] == "partition"


class DeathError(Exception):
    """The process ends here."""


@pytest.fixture
def stored(address: TableAddress, tmp_path: Path) -> Callable[[], list[Path]]:
    """Lists the files of a table with rows."""
    commit_batch(address, write_batch(address, 0, 3))

    def stored() -> list[Path]:
        return [path for path in tmp_path.rglob("*.*") if path.suffix in (".parquet", ".avro")] + [
            *tmp_path.rglob("*.metadata.json")
        ]

    assert len(stored()) > 3
    return stored


def dying(real: Callable[..., Any], step: int) -> Callable[..., Any]:
    """Return a function that dies in its call `step`; a negative one means after that call."""
    calls = iter(range(1, 1000))

    def call(*args: Any, **kwargs: Any) -> Any:
        number = next(calls)
        if number == step:
            raise DeathError
        done = real(*args, **kwargs)
        if number == -step:
            raise DeathError
        return done

    return call


@pytest.mark.parametrize(
    ("method", "step"),
    [
        ("rename_table", 1),
        ("rename_table", -1),
        ("delete", 1),
        ("delete", -3),
        ("drop_table", 1),
        ("drop_table", -1),
    ],
)
def test_a_removal_that_died_anywhere_is_completed(
    address: TableAddress,
    stored: Callable[[], list[Path]],
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    step: int,
) -> None:
    owner = PyArrowFileIO if method == "delete" else SqlCatalog
    files = len(stored())
    with monkeypatch.context() as patch:
        patch.setattr(owner, method, dying(getattr(owner, method), step))
        with pytest.raises(DeathError):
            remove(address, purge=True)
    left = len(stored())
    is_begun = (method, step) != ("rename_table", 1)
    assert (address.exists(), is_unfinished(address)) == (not is_begun, _has_entry(address))
    assert left == files or not address.exists(), "a table in the catalog has its files"

    # The table has left the catalog before its last file, the metadata.
    orphans = left if (method, step) == ("drop_table", -1) else 0
    assert orphans <= 1
    assert remove(address, purge=True) >= left - orphans
    assert not address.exists()
    assert not is_unfinished(address)
    assert len(stored()) == orphans
    assert remove(address, purge=True) == 0


def _has_entry(address: TableAddress) -> bool:
    catalog = SqlCatalog("lakelog", **address.catalog)
    return ("lakelog", f"{address.identifier[1]}~dropped") in catalog.list_tables("lakelog")


def test_a_new_table_of_the_name_is_not_part_of_an_old_removal(
    address: TableAddress, stored: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFileIO, "delete", dying(PyArrowFileIO.delete, 1))
        with pytest.raises(DeathError):
            remove(address, purge=True)
    assert is_unfinished(address)
    new = ensure_table(TableAddress(address.catalog, address.identifier))
    assert not is_unfinished(address)
    remove(address, purge=False)
    assert [path for path in stored() if str(path).endswith(".json")] == [
        Path(new.metadata_location.removeprefix("file://"))
    ], "files that were to be deleted are, and the files of the new table stay"


def test_a_warehouse_that_is_away_keeps_its_table(
    address: TableAddress, stored: Callable[[], list[Path]], tmp_path: Path
) -> None:
    files = len(stored())
    folder, away = tmp_path / "lakelog", tmp_path / "away"
    folder.rename(away)
    with pytest.raises(FileNotFoundError):
        remove(address, purge=True)
    away.rename(folder)
    assert address.exists()
    assert remove(address, purge=True) >= files
    assert not stored()


def test_a_file_that_a_job_adds_meanwhile_is_deleted(
    address: TableAddress, stored: Callable[[], list[Path]], monkeypatch: pytest.MonkeyPatch
) -> None:
    late, delete = stored()[0].with_name("late.parquet"), PyArrowFileIO.delete
    adds = iter([True])

    def delete_and_add(io: PyArrowFileIO, path: str) -> None:
        if next(adds, False):
            late.touch()
        delete(io, path)

    monkeypatch.setattr(PyArrowFileIO, "delete", delete_and_add)
    remove(address, purge=True)
    assert not stored()


@pytest.mark.parametrize("other_is_inside", [True, False])
def test_a_folder_that_another_table_shares_is_not_deleted(
    address: TableAddress, stored: Callable[[], list[Path]], other_is_inside: bool
) -> None:
    folder = address.load().location()
    shared = f"{folder}/inside" if other_is_inside else folder.rpartition("/")[0]
    catalog, files = SqlCatalog("lakelog", **address.catalog), len(stored())
    schema = address.load().schema()
    catalog.create_table(("lakelog", "guest"), schema, location=shared)
    with pytest.raises(ValueError, match=r"also has the table lakelog\.guest: drop it without"):
        remove(address, purge=True)
    assert address.exists()
    assert len(stored()) == files + 1
    remove(address, purge=False)
    assert not address.exists()


def test_a_folder_with_the_catalog_is_not_deleted(tmp_path: Path, address: TableAddress) -> None:
    catalog = SqlCatalog("lakelog", **address.catalog)
    schema = address.load().schema()
    catalog.create_table(("lakelog", "wide"), schema, location=tmp_path.as_uri())
    wide = TableAddress(address.catalog, ("lakelog", "wide"))
    with pytest.raises(ValueError, match=r"also has the catalog .*catalog\.db, the table"):
        remove(wide, purge=True)


def test_a_catalog_without_the_namespace_has_nothing_to_remove(tmp_path: Path) -> None:
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path / 'catalog.db'}"}
    SqlCatalog("lakelog", **properties)
    address = TableAddress(properties, ("lakelog", "orders"))
    assert remove(address, purge=True) == 0
    assert remove(address, purge=False) == 0


def test_a_missing_catalog_has_nothing_to_remove_and_is_not_created(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'gone.db'}"
    address = TableAddress({"type": "sql", "uri": uri}, ("lakelog", "orders"))
    assert remove(address, purge=True) == 0
    assert not is_unfinished(address)
    assert not list(tmp_path.iterdir())


TOPICS = {"orders": TopicMeta("orders", TOPIC_ID, (0,)), "sales": TopicMeta("sales", "s", (0,))}


@pytest.fixture
def filled(tmp_path: Path) -> TableAddress:
    made = new_table(tmp_path)
    commit_batch(made, write_batch(made, 0, 3))
    return made


def test_tables_of_a_warehouse_are_found_by_the_ids_of_their_topics(
    filled: TableAddress, tmp_path: Path
) -> None:
    open_dead_letters(filled, TOPIC_ID)
    found = stored_locations(TOPICS, [(str(tmp_path / "none"), ""), (str(tmp_path), "")])
    assert list(found) == ["orders"]
    location = found["orders"]
    assert (location.name, location.published, location.is_enabled) == ("orders", {0: 3}, False)
    assert location.address.identifier == filled.identifier
    assert not (tmp_path / "none").exists(), "a search creates no catalog"


def test_a_table_of_another_name_is_found(filled: TableAddress, tmp_path: Path) -> None:
    renamed = {"bought": TopicMeta("bought", TOPIC_ID, (0,))}
    assert stored_locations(renamed, [(str(tmp_path), "")])["bought"].name == "orders"


@pytest.mark.parametrize("is_enabled", [True, False])
def test_keys_name_the_table_of_an_enabled_and_of_a_disabled_topic(
    filled: TableAddress, tmp_path: Path, is_enabled: bool
) -> None:
    topics = Topics()
    topics.keys_of["orders"] = {
        "table.enable": str(is_enabled).lower(),
        "table.warehouse": str(tmp_path),
        "table.archived.offsets": "0:2",
    }
    (location,) = named_locations(cast(TopicClient, topics), TOPICS).values()
    assert location.is_enabled is is_enabled
    assert location.published == ({0: 2} if is_enabled else {0: 3}), "the table knows its end"


def test_keys_may_name_a_dropped_table_or_one_on_another_host(tmp_path: Path) -> None:
    topics = Topics()
    new_table(tmp_path)  # the catalog, with the table `orders`
    keys: dict[str, str | None] = {"table.enable": "false", "table.warehouse": str(tmp_path)}
    topics.keys_of["orders"] = {**keys, "table.name": "dropped"}
    topics.keys_of["sales"] = {**keys, "table.warehouse": "/of/another/host"}
    (location,) = named_locations(cast(TopicClient, topics), TOPICS).values()
    assert (location.topic, location.published) == ("sales", {})


class Topic(Log):
    def latest(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return self.log_end(partitions)


def test_a_table_is_compared_with_its_log(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 2, 7))
    commit_batch(address, write_batch(address, 7, 9, 1))
    found = overview(cast("TopicClient", Topic({0: 12}, {0: 5})), archive_of(address))
    assert (found.rows, found.files, found.small_files, found.snapshots) == (7, 2, 2, 2)
    (one,) = found.partitions
    assert one == PartitionOverview(0, 2, 9, 5, 12)
    assert (one.lag, one.only_in_table) == (3, 3)


def test_partitions_without_archived_records_have_a_lag(address: TableAddress) -> None:
    commit_batch(address, write_batch(address, 0, 7))
    log = Topic({0: 7, 1: 30}, {1: 20})
    found = overview(cast("TopicClient", log), archive_of(address))
    assert found.partitions[1] == PartitionOverview(1, 20, 20, 20, 30)
    assert [each.lag for each in found.partitions] == [0, 10]


def test_offsets_that_left_the_log_unarchived_are_no_lag() -> None:
    assert PartitionOverview(0, 2, 9, 11, 12).lag == 1
    assert PartitionOverview(0, 2, 9, 11, 12).only_in_table == 7
