import java.time.Duration;
import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.*;

/**
 * Consume, transform and produce by Java's clients: a transaction for each record, each right after
 * the previous one. Any error ends it.
 *
 * Arguments: bootstrap, topic to read, topic to write (of one partition), number of records.
 */
public class TransformingApplication {
    static final Duration POLL = Duration.ofMillis(200);

    public static void main(String[] args) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        settings.put("isolation.level", "read_committed");
        settings.put("transactional.id", args[2]);
        settings.put("linger.ms", "0");
        int left = Integer.parseInt(args[3]);
        try (Consumer<byte[], byte[]> consumer = new KafkaConsumer<>(
                     settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
             Producer<byte[], byte[]> producer = new KafkaProducer<>(
                     settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.initTransactions();
            consumer.subscribe(List.of(args[1]));
            while (left > 0)
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    transform(consumer, producer, record, args[2]);
                    left--;
                }
        }
    }

    static void transform(Consumer<byte[], byte[]> consumer, Producer<byte[], byte[]> producer,
            ConsumerRecord<byte[], byte[]> record, String target) {
        producer.beginTransaction();
        producer.send(new ProducerRecord<>(target, 0, null, record.value()));
        producer.sendOffsetsToTransaction(
            Map.of(new TopicPartition(record.topic(), record.partition()),
                new OffsetAndMetadata(record.offset() + 1)),
            consumer.groupMetadata());
        producer.commitTransaction();
    }
}
