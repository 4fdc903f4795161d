"""The APIs that a broker serves to clients, without the APIs between brokers of a cluster."""

from __future__ import annotations

from lakelog.protocol.api import Api
from lakelog.server.routes import served_apis

CLIENT_APIS: dict[int, Api] = {
    each.api.key: each.api for each in served_apis() if not each.between_brokers
}
"""By API key."""
