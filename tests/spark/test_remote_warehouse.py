"""Tables in an object store: an S3 of its own (moto), as PyIceberg reaches it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from moto.server import ThreadedMotoServer
from pyarrow.fs import FileSelector, S3FileSystem

from lakelog.client.admin import Admin, ResourceType
from spark.scripts import counted, printed_scripts, run_script
from spark.table_sync import PLAIN, Sync
from spark.topics import MakeTopic, produce

pytestmark = [pytest.mark.spark]

KEYS = {"access_key": "a-key", "secret_key": "a-secret", "region": "us-east-1"}


@pytest.fixture(scope="module")
def endpoint() -> Iterator[str]:
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


def settings(endpoint: str) -> dict[str, str]:
    prefix = "PYICEBERG_CATALOG__LAKELOG__S3__"
    return {
        f"{prefix}ENDPOINT": endpoint,
        f"{prefix}REGION": KEYS["region"],
        f"{prefix}ACCESS_KEY_ID": KEYS["access_key"],
        f"{prefix}SECRET_ACCESS_KEY": KEYS["secret_key"],
    }


def test_a_table_in_s3_is_kept_up_to_date_and_read(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, endpoint: str
) -> None:
    store = S3FileSystem(endpoint_override=endpoint, allow_bucket_creation=True, **KEYS)
    store.create_dir("lake")
    topic = make_topic(6)
    where = (topic, "--warehouse", "s3://lake/house", "--catalog", str(tmp_path))
    environment = settings(endpoint)

    status, out, err = Sync(bootstrap, *where, **environment).end()

    assert (status, err) == (0, f"{topic}: 6 records in the table\n")
    assert f"s3://lake/house/lakelog/{topic}/metadata/" in out
    data = store.get_file_info(FileSelector(f"lake/house/lakelog/{topic}/data"))
    assert len(data) == 1, "one task suffices for a few bytes"
    scripts = printed_scripts(out)
    assert list(scripts) == ["pyiceberg", "spark"]
    spark = run_script(scripts["spark"], tmp_path, environment)
    assert counted(spark) == {"0": "2", "1": "2", "2": "2"}

    with Admin(bootstrap) as admin:
        keys = {"table.enable": "true", "table.latest": "true", "table.latest.buckets": "1"}
        admin.configs.alter(ResourceType.TOPIC, topic, keys)
    produce(bootstrap, topic, range(6, 9))
    more = Sync(bootstrap, *where, "-f", "json", program=PLAIN, **environment).result()
    assert (more["rows_added"], more["rows_total"]) == (3, 9)
    assert topic in run_script(more["snippets"]["pyiceberg"], tmp_path, environment)
    (newest,) = store.get_file_info(FileSelector(f"lake/house/lakelog/{topic}_latest/data"))
    with store.open_input_file(newest.path) as file:
        keys_found = pq.read_table(file)["key"].to_pylist()
    assert keys_found == [b"k%d" % number for number in range(9) if number % 5]


def test_a_bucket_that_is_not_there_is_named(
    bootstrap: str, make_topic: MakeTopic, tmp_path: Path, endpoint: str
) -> None:
    elsewhere = ("--warehouse", "s3://no-such-bucket/house", "--catalog", str(tmp_path))

    status, out, err = Sync(bootstrap, make_topic(), *elsewhere, **settings(endpoint)).end()

    assert (status, out) == (2, "")
    assert err.startswith("error[LL0902] the warehouse s3://no-such-bucket/house cannot be used: ")
    assert len(err.splitlines()) == 2
