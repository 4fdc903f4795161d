import java.io.*;
import java.nio.charset.StandardCharsets;
import java.util.*;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java's idempotent producer: numbered records to random partitions until SIGTERM, each with its
 * invocation and its response as lines of JSON, in the form of tests/torture/history.py.
 *
 * Arguments: name, life, bootstrap, journal, seed, topic, number of partitions.
 */
public class NotingProducer {
    static final int SENDS_MAX = 4, PAUSE_MS = 40, OUTSTANDING_MAX = 1000, SETTLE_S = 120;
    static FileOutputStream journal;
    static String process;
    static int outstanding;

    public static void main(String[] args) throws Exception {
        process = args[0] + ":" + args[1];
        journal = new FileOutputStream(args[3], true);
        CountDownLatch stopping = new CountDownLatch(1), stopped = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            stopping.countDown();
            try {
                boolean done = stopped.await(2 * SETTLE_S, TimeUnit.SECONDS);
                Runtime.getRuntime().halt(done ? 0 : 1);
            } catch (InterruptedException e) {
                Runtime.getRuntime().halt(1);
            }
        }));
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[2]);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("linger.ms", "2");
        settings.put("request.timeout.ms", "10000");
        settings.put("delivery.timeout.ms", "180000");
        settings.put("max.block.ms", "180000");
        settings.put("key.serializer", StringSerializer.class.getName());
        settings.put("value.serializer", StringSerializer.class.getName());
        Random random = new Random(Long.parseLong(args[4]));
        int sent = 0;
        try (Producer<String, String> producer = new KafkaProducer<>(settings)) {
            while (!stopping.await(PAUSE_MS, TimeUnit.MILLISECONDS))
                for (int left = random.nextInt(SENDS_MAX) + 1; left > 0 && mayMore(); left--)
                    send(producer, args[5], random.nextInt(Integer.parseInt(args[6])), ++sent);
            producer.flush();
        }
        stopped.countDown();
    }

    static void send(Producer<String, String> producer, String topic, int partition, int number)
            throws IOException {
        String value = process + "/" + number;
        note(String.format("\"op\": %d, \"f\": \"send\", \"type\": \"invoke\", "
            + "\"records\": [[\"%s-%d\", \"%s\"]]", number, topic, partition, value));
        producer.send(new ProducerRecord<>(topic, partition, null, value), (metadata, failure) -> {
            synchronized (NotingProducer.class) { outstanding--; }
            if (failure != null)
                note(String.format("\"f\": \"error\", \"type\": \"ok\", \"text\": \"%s: %s\"", value,
                    failure.toString().replace('"', '\'')));
            note(failure == null
                ? String.format("\"op\": %d, \"type\": \"ok\", \"offsets\": [%d]", number, metadata.offset())
                : String.format("\"op\": %d, \"type\": \"info\"", number));
        });
    }

    static synchronized boolean mayMore() {
        if (outstanding >= OUTSTANDING_MAX) return false;
        outstanding++;
        return true;
    }

    static synchronized void note(String keys) {
        String line = String.format("{\"at\": %d, \"process\": \"%s\", %s}\n", System.nanoTime(), process, keys);
        try {
            journal.write(line.getBytes(StandardCharsets.UTF_8));
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
    }
}
