from __future__ import annotations

import pytest

from lakelog.base.config.broker_config import BROKER_CONFIGS
from lakelog.base.config.key import ConfigError, Effect


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("security.inter.broker.protocol", "SSL"),
    ],
)
def test_a_key_that_would_be_missed_is_refused_with_a_reason(name: str, text: str) -> None:
    """To ignore it silently would leave the data unprotected."""
    key = BROKER_CONFIGS[name]
    with pytest.raises(ConfigError, match=f"{name}="):
        key.parse(text)
    assert key.effect is not Effect.NONE
