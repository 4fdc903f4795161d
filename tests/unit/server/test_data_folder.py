"""The data folder of a broker."""

from __future__ import annotations

from memory_broker import DATA, MemoryBroker


def test_a_folder_has_logs_from_its_first_topic_on() -> None:
    with MemoryBroker() as world:
        folder = world._server._folder
        assert not folder.has_logs()
        world.create("orders")
        assert folder.has_logs()


def test_space_is_that_of_the_folders_file_system() -> None:
    with MemoryBroker() as world:
        assert world._server._folder.space() == world.disk.space(DATA)


def test_a_closed_folder_needs_no_recovery() -> None:
    with MemoryBroker() as world:
        world.create("orders", 3)
        world.restart()
        directory = world._server._folder.directory
        assert directory.clean
        assert not directory.has_lost
