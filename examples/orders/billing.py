"""A small service that turns orders into invoices, each exactly once.

An order is a JSON object with `id`, `price` and `count`. An order that cannot be read goes to a
topic of its own, with the reason in a header.
"""

from __future__ import annotations

import json

from confluent_kafka import Consumer, KafkaException, Producer


def invoice(order: bytes) -> bytes:
    """Return the invoice of an order. Raises `ValueError` for an order that cannot be read."""
    fields = json.loads(order)
    try:
        result = {"order": fields["id"], "total": fields["price"] * fields["count"]}
    except (KeyError, TypeError) as error:
        raise ValueError(f"not an order: {error!r}") from error
    return json.dumps(result).encode()


class Billing:
    """Reads orders and writes invoices, one transaction for each order.

    `name` is its consumer group and its transactional id.
    """

    def __init__(
        self, bootstrap_servers: str, *, name: str, orders: str, invoices: str, rejected: str
    ) -> None:
        self._invoices = invoices
        self._rejected = rejected
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": name,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap_servers,
                "transactional.id": name,
                # librdkafka 2.16 does not find the transaction coordinator again when it has
                # bootstrapped anew, as it does when it lost its only broker.
                "metadata.recovery.strategy": "none",
            }
        )
        self._consumer.subscribe([orders])
        self._producer.init_transactions()

    def handle_next(self, timeout_s: float = 60.0) -> None:
        """Wait for an order and handle it. Raises `TimeoutError` if there is none in time."""
        order = self._consumer.poll(timeout_s)
        if order is None:
            raise TimeoutError(f"no order within {timeout_s} s")
        if order.error():
            raise KafkaException(order.error())
        self._producer.begin_transaction()
        self._answer(order.value())
        self._producer.send_offsets_to_transaction(
            self._consumer.position(self._consumer.assignment()),
            self._consumer.consumer_group_metadata(),
        )
        self._producer.commit_transaction()

    def _answer(self, order: bytes) -> None:
        try:
            self._producer.produce(self._invoices, invoice(order))
        except ValueError as error:
            self._producer.produce(self._rejected, order, headers={"reason": str(error)})

    def close(self) -> None:
        self._consumer.close()
