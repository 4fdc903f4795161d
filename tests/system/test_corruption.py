"""Damaged segments: below the recovery point corruption, in the unflushed tail a cut."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from broker_process import BrokerProcess
from file_oracle import check_data_folder
from kafka_jars import require
from wire_client import WireClient, batch_of, create_topic, fetch, produce

VALUE = b"the value that is going to be damaged"


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    """Killed, with one record of each topic below the recovery point, and one above it."""
    with BrokerProcess(tmp_path / "data") as broker:
        with WireClient(broker.bootstrap) as client:
            for topic in ("damaged", "intact"):
                create_topic(client, topic)
                produce(client, topic, batch_of(b"below: " + VALUE))
        broker.stop()
        broker.restart()
        with WireClient(broker.bootstrap) as client:
            for topic in ("damaged", "intact"):
                produce(client, topic, batch_of(b"above: " + VALUE))
        broker.kill()
        yield broker


def _log(broker: BrokerProcess, topic: str = "damaged") -> Path:
    return broker.data / f"{topic}-0" / f"{0:020}.log"


def _flip(path: Path, at: bytes) -> bytes:
    """Changes one bit of the record that contains `at`; the file as it is then."""
    content = bytearray(path.read_bytes())
    content[content.index(at)] ^= 1
    path.write_bytes(content)
    return bytes(content)


def _check_intact(client: WireClient) -> None:
    records = bytes(fetch(client, "intact", 0).records)
    assert b"below: " + VALUE in records
    assert b"above: " + VALUE in records
    assert produce(client, "intact", batch_of(b"more")).base_offset == 2


def test_below_the_recovery_point_the_partition_goes_offline(broker: BrokerProcess) -> None:
    content = _flip(_log(broker), b"below: ")
    broker.restart()
    assert "damaged-0" in broker.log()
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, "damaged", 0).error_code == 56
        assert produce(client, "damaged", batch_of(b"x")).error_code == 56
        _check_intact(client)
    broker.stop(clean=False)
    assert _log(broker).read_bytes() == content


@pytest.mark.java
def test_in_the_tail_the_log_is_cut_and_the_rest_kept_aside(broker: BrokerProcess) -> None:
    require("java")
    content = _flip(_log(broker), b"above: ")
    tail = content[content.index(VALUE) + len(VALUE) + 1 :]
    broker.restart()
    assert "damaged" in broker.log()
    with WireClient(broker.bootstrap) as client:
        answer = fetch(client, "damaged", 0)
        assert answer.high_watermark == 1
        assert b"below: " + VALUE in bytes(answer.records)
        assert produce(client, "damaged", batch_of(b"after the cut")).base_offset == 1
        _check_intact(client)
    broker.stop()
    (aside,) = _log(broker).parent.glob("*.cut")
    assert aside.read_bytes() == tail
    assert b"after the cut" in _log(broker).read_bytes()
    check_data_folder(broker.data)


def test_a_torn_write_is_cut(broker: BrokerProcess) -> None:
    path = _log(broker)
    path.write_bytes(path.read_bytes()[:-7])
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, "damaged", 0).high_watermark == 1
        assert produce(client, "damaged", batch_of(b"x")).base_offset == 1
        _check_intact(client)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["flip", "remove", "cut"])
def test_a_damaged_index_is_built_anew(broker: BrokerProcess, suffix: str, damage: str) -> None:
    path = _log(broker).with_suffix(suffix)
    if damage == "remove":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(path.read_bytes()[:-3])
    else:
        path.write_bytes(b"\xff" * 64)
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, "damaged", 0).high_watermark == 2
        assert VALUE in bytes(fetch(client, "damaged", 1).records)


def test_a_log_that_is_gone_is_not_an_empty_log(broker: BrokerProcess) -> None:
    _log(broker).unlink()
    broker.restart()
    with WireClient(broker.bootstrap) as client:
        assert fetch(client, "damaged", 0).error_code == 56
        _check_intact(client)


def test_a_folder_that_no_topic_knows_is_kept(broker: BrokerProcess) -> None:
    folder = _log(broker).parent
    stranger = folder.with_name("stranger-0")
    stranger.mkdir()
    (stranger / f"{0:020}.log").write_bytes(_log(broker).read_bytes())
    (stranger / "partition.metadata").write_text("version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAABA")
    broker.restart()
    broker.stop()
    (stray,) = broker.data.glob("stranger-0*")
    assert stray.name.endswith("-stray")
    assert (stray / f"{0:020}.log").exists()
