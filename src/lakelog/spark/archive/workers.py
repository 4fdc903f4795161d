"""What workers on other hosts must reach: the tables' folder and the broker."""

from __future__ import annotations

from lakelog.client.address import is_loopback, parse_bootstrap
from lakelog.spark.session import has_local_workers
from lakelog.tables.iceberg.warehouse import Warehouse, is_remote


def check_reachable(master: str, place: Warehouse, bootstrap: str, *, is_shared: bool) -> list[str]:
    """Return warnings. `is_shared` says that all workers reach the warehouse's folder.

    Raises `ValueError` when a worker would write its files where only it finds them, and
    `AddressError` for a malformed `bootstrap`.
    """
    if has_local_workers(master):
        return []
    if not is_remote(place.location) and not is_shared:
        raise ValueError(
            f"workers of {master} may be on other hosts and write to folders of their own, and the "
            f"warehouse {place.location} is a local folder: name one in an object store, or pass "
            "--shared-warehouse if all hosts have this folder mounted"
        )
    loopback = [host for host, _ in parse_bootstrap(bootstrap) if is_loopback(host)]
    return [
        f"workers of {master} may be on other hosts, which do not reach a broker at {host}"
        for host in loopback
    ]
