"""The broker's settings in force: its settings at the start, overridden by later ones.

`serve --set` overrides values that earlier runs have stored. A value that is set while the broker
runs overrides `--set`, so the newest setting counts.
"""

from __future__ import annotations

import logging

from lakelog.base.config.key import ConfigError
from lakelog.base.events import event
from lakelog.metadata.describe_configs import effective_broker_config
from lakelog.metadata.image import MetadataImage
from lakelog.metadata.records import ResourceType
from lakelog.server.broker import Broker

logger = logging.getLogger(__name__)


class Settings:
    """Keeps `broker.config`, and which static settings override stored ones."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    def start(self, image: MetadataImage) -> None:
        """Warn of other stored values that the command line overrides."""
        self._use(image)
        static = self._broker.static_config
        for key in sorted(static.forced):
            for target, value in self._stored(image, key).items():
                if value == static.static[key]:
                    continue
                logger.warning(
                    "%s=%s of the command line overrules the stored value %s until the stored "
                    "value changes; `lakelog config set %s --unset %s` removes it",
                    key,
                    static.static[key],
                    value,
                    target,
                    key,
                    extra=event("stored_setting_overruled", key=key),
                )

    def follow(self, old: MetadataImage, new: MetadataImage) -> None:
        """Apply the settings of a new image."""
        if new.config_map is old.config_map:
            return
        forced = self._broker.static_config.forced
        kept = {key for key in forced if self._stored(old, key) == self._stored(new, key)}
        if kept != forced:
            self._broker.static_config = self._broker.static_config.with_forced(kept)
        self._use(new)

    def _use(self, image: MetadataImage) -> None:
        static = self._broker.static_config
        try:
            self._broker.use_config(effective_broker_config(image, static, self._broker.node_id))
        except ConfigError as error:
            logger.warning(
                "dynamic configuration is ignored: %s",
                error,
                extra=event("dynamic_config_ignored"),
            )

    def _stored(self, image: MetadataImage, key: str) -> dict[str, str]:
        """Return the stored values of a key, for all brokers and for this one.

        The keys are the options of `lakelog config` that name the brokers.
        """
        node_id = self._broker.node_id
        targets = {"--all-brokers": "", f"--broker {node_id}": str(node_id)}
        layers = {
            target: image.configs(ResourceType.BROKER, name) for target, name in targets.items()
        }
        return {target: layer[key] for target, layer in layers.items() if key in layer}
