package org.apache.spark.kafka010;

import java.util.HashMap;
import java.util.Map;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Collects the settings of a Kafka client; listeners without authentication need nothing more. */
public class KafkaConfigUpdater {
    private final Map<String, Object> settings;

    public KafkaConfigUpdater(
            String module, scala.collection.immutable.Map<String, String> parameters) {
        settings = new HashMap<>(CollectionConverters.asJava(parameters));
    }

    public KafkaConfigUpdater set(String key, Object value) {
        settings.put(key, value);
        return this;
    }

    public KafkaConfigUpdater setIfUnset(String key, Object value) {
        settings.putIfAbsent(key, value);
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded() {
        return this;
    }

    public KafkaConfigUpdater setAuthenticationConfigIfNeeded(Option<?> clusterConfig) {
        return this;
    }

    public Map<String, Object> build() {
        return new HashMap<>(settings);
    }
}
