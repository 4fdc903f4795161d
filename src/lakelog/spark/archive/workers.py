"""Checks that workers on other hosts can reach the tables' folder and the broker."""

from __future__ import annotations

from lakelog.client.address import is_loopback, parse_bootstrap
from lakelog.spark.session import has_local_workers
from lakelog.tables.iceberg.warehouse import Warehouse, is_remote


def check_reachable(master: str, place: Warehouse, bootstrap: str, *, is_shared: bool) -> list[str]:
    """Return warnings about addresses that workers may not reach.

    is_shared: whether all workers can reach the warehouse's folder. Raises `ValueError` if a worker
    would write its files into a folder of its own host, and `AddressError` for a malformed
    `bootstrap`.
    """
    if has_local_workers(master):
        return []
    if not is_remote(place.location) and not is_shared:
        raise ValueError(
            f"workers of {master} may be on other hosts, but the warehouse {place.location} is a "
            "local folder: use an object store, or pass --shared-warehouse if all hosts have this "
            "folder mounted"
        )
    loopback = [host for host, _ in parse_bootstrap(bootstrap) if is_loopback(host)]
    return [
        f"workers of {master} may be on other hosts, which cannot reach a broker at {host}"
        for host in loopback
    ]
