import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.coordinator.group.GroupConfig;
import org.apache.kafka.server.config.AbstractKafkaConfig;
import org.apache.kafka.server.config.ConfigSynonym;
import org.apache.kafka.server.config.DynamicBrokerConfig;
import org.apache.kafka.server.config.DynamicConfig;
import org.apache.kafka.server.config.ServerTopicConfigSynonyms;
import org.apache.kafka.storage.internals.log.LogConfig;

/**
 * Prints Apache Kafka's configuration keys, one a line, tab separated: resource, name, type,
 * default ("null" in brackets for none), internal or public, where it may change while the broker
 * runs, the broker keys that stand behind it, and which of the values given as arguments it takes
 * (one digit for each).
 */
public final class ConfigOracle {
    public static void main(String[] probes) {
        Map<String, String> modes = DynamicBrokerConfig.dynamicConfigUpdateModes();
        Map<String, ConfigDef.ConfigKey> broker =
            new TreeMap<>(AbstractKafkaConfig.CONFIG_DEF.configKeys());
        DynamicConfig.Broker.configKeys().forEach(broker::putIfAbsent);
        for (ConfigDef.ConfigKey key : broker.values()) {
            print("broker", key, modes.getOrDefault(key.name, "read-only"), List.of(), probes);
        }
        for (ConfigDef.ConfigKey key : sorted(LogConfig.configDefCopy())) {
            List<String> synonyms = new ArrayList<>();
            for (ConfigSynonym item : ServerTopicConfigSynonyms.ALL_TOPIC_CONFIG_SYNONYMS
                    .getOrDefault(key.name, List.of())) {
                synonyms.add(item.name());
            }
            print("topic", key, "topic", synonyms, probes);
        }
        for (ConfigDef.ConfigKey key : sorted(GroupConfig.CONFIG_DEF)) {
            List<String> synonyms = new ArrayList<>();
            GroupConfig.brokerSynonym(key.name).ifPresent(synonyms::add);
            print("group", key, "group", synonyms, probes);
        }
    }

    private static Iterable<ConfigDef.ConfigKey> sorted(ConfigDef definition) {
        return new TreeMap<>(definition.configKeys()).values();
    }

    private static void print(
            String resource, ConfigDef.ConfigKey key, String mode, List<String> synonyms,
            String[] probes) {
        Object value = key.defaultValue == ConfigDef.NO_DEFAULT_VALUE ? null : key.defaultValue;
        StringBuilder accepted = new StringBuilder();
        for (String probe : probes) accepted.append(accepts(key, probe) ? '1' : '0');
        System.out.println(String.join("\t", resource, key.name, key.type.name(),
                value == null ? "[null]" : ConfigDef.convertToString(value, key.type),
                key.internalConfig ? "internal" : "public", mode, String.join(",", synonyms),
                accepted));
    }

    private static boolean accepts(ConfigDef.ConfigKey key, String text) {
        try {
            Object value = ConfigDef.parseType(key.name, text, key.type);
            if (key.validator != null) key.validator.ensureValid(key.name, value);
            return true;
        } catch (ConfigException error) {
            return false;
        }
    }
}
