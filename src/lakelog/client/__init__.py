"""A client for the Kafka protocol: producer, consumer, exact reader, administrator.

lakelog has its own client because its table engine and its tests need control over offsets,
sequences and whole batches, which wrapped libraries do not offer. Read `cluster.py` first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lakelog.base.closeable import Closeable

if TYPE_CHECKING:
    from lakelog.client.admin import Admin
    from lakelog.client.consumer import Consumer, PartitionReader
    from lakelog.client.producer import Producer, TransactionalProducer

__all__ = ["Client", "connect"]


class Client(Closeable):
    """Creates producers, consumers and readers of one cluster.

    The caller closes them. `close` closes only the administrator that `admin` returns.
    """

    def __init__(self, bootstrap: str, *, client_id: str, timeout_s: float) -> None:
        self.bootstrap = bootstrap
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._admin: Admin | None = None

    @property
    def admin(self) -> Admin:
        """The administrator, created at the first use."""
        if self._admin is None:
            from lakelog.client.admin import Admin

            self._admin = Admin(
                self.bootstrap, client_id=self._client_id, timeout_s=self._timeout_s
            )
        return self._admin

    def producer(self, **settings: Any) -> Producer:
        """Return a new `Producer` with these settings.

        Raises `ValueError` for invalid settings, and `AddressError`.
        """
        from lakelog.client.producer import Producer

        return Producer(self.bootstrap, **{"client_id": self._client_id, **settings})

    def transactional_producer(
        self, transactional_id: str, **settings: Any
    ) -> TransactionalProducer:
        """Return a new `TransactionalProducer` with these settings.

        Raises as `producer`.
        """
        from lakelog.client.producer import TransactionalProducer

        merged = {"client_id": self._client_id, **settings}
        return TransactionalProducer(self.bootstrap, transactional_id, **merged)

    def consumer(self, group: str | None = None, **settings: Any) -> Consumer:
        """Return a new `Consumer` with these settings.

        Raises `ValueError` for invalid settings, and `AddressError`.
        """
        from lakelog.client.consumer import Consumer

        merged = {"client_id": self._client_id, "timeout_s": self._timeout_s, **settings}
        return Consumer(self.bootstrap, group=group, **merged)

    def reader(self, **settings: Any) -> PartitionReader:
        """Return a new `PartitionReader` with these settings.

        Raises `AddressError`.
        """
        from lakelog.client.consumer import PartitionReader

        return PartitionReader(self.bootstrap, **{"client_id": self._client_id, **settings})

    def close(self) -> None:
        if self._admin is not None:
            self._admin.close()


def connect(bootstrap: str, *, client_id: str = "lakelog", timeout_s: float = 30.0) -> Client:
    """Return a client of the cluster at `bootstrap` after a broker has answered.

    bootstrap: `host:port`, several separated by commas. timeout_s: limit of each operation in
    seconds. Raises `UnreachableError`, and `AddressError` for a malformed address.
    """
    client = Client(bootstrap, client_id=client_id, timeout_s=timeout_s)
    client.admin.topics.list()
    return client
