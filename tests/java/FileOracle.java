import java.io.File;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.stream.Stream;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.AbortedTxn;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.metadata.properties.MetaProperties;
import org.apache.kafka.metadata.properties.PropertiesUtils;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.storage.internals.checkpoint.CleanShutdownFileHandler;
import org.apache.kafka.storage.internals.checkpoint.LeaderEpochCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.OffsetCheckpointFile;
import org.apache.kafka.storage.internals.checkpoint.PartitionMetadataFile;
import org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache;
import org.apache.kafka.storage.internals.log.BatchMetadata;
import org.apache.kafka.storage.internals.log.EpochEntry;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogSegment;
import org.apache.kafka.storage.internals.log.OffsetIndex;
import org.apache.kafka.storage.internals.log.ProducerStateEntry;
import org.apache.kafka.storage.internals.log.ProducerStateManager;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.TimeIndex;
import org.apache.kafka.storage.internals.log.TransactionIndex;

/**
 * Reads every file of a data folder but the logs with the classes that Kafka itself uses, writes it
 * again with them where they can, and compares. Prints "path, tab, what was read" for each file and
 * "ERROR, tab, path, tab, reason" for each that does not pass.
 *
 * Arguments: the data folder, an empty folder to write in.
 */
public class FileOracle {
    private static Path scratch;

    public static void main(String[] arguments) throws Exception {
        Path data = Path.of(arguments[0]);
        scratch = Path.of(arguments[1]);
        List<Path> files;
        try (Stream<Path> walk = Files.walk(data)) {
            files = walk.filter(Files::isRegularFile).sorted().toList();
        }
        for (Path file : files) {
            try {
                String found = check(file.toFile());
                if (found != null) System.out.println(data.relativize(file) + "\t" + found);
            } catch (Throwable error) {
                System.out.println("ERROR\t" + data.relativize(file) + "\t" + error);
            }
        }
        for (Path folder : files.stream().map(Path::getParent).distinct().toList()) {
            try {
                String found = replay(folder);
                if (found != null) System.out.println(data.relativize(folder) + "\t" + found);
            } catch (Throwable error) {
                System.out.println("ERROR\t" + data.relativize(folder) + "\t" + error);
            }
        }
    }

    private static String check(File file) throws Exception {
        String name = file.getName();
        LogDirFailureChannel failures = new LogDirFailureChannel(1);
        if (name.equals("partition.metadata")) return partitionMetadata(file, failures);
        if (name.equals("leader-epoch-checkpoint")) return epochs(file, failures);
        if (name.endsWith("-offset-checkpoint")) return offsets(file, failures);
        if (name.equals("meta.properties")) return metaProperties(file);
        if (name.equals(".kafka_cleanshutdown")) {
            return "epoch " + new CleanShutdownFileHandler(file.getParent()).read();
        }
        if (name.endsWith(".snapshot")) return snapshot(file);
        if (name.endsWith(".index")) {
            OffsetIndex index = new OffsetIndex(file, base(name), -1, false);
            index.sanityCheck();
            return index.entries() + " entries to " + index.lastOffset();
        }
        if (name.endsWith(".timeindex")) {
            TimeIndex index = new TimeIndex(file, base(name), -1, false);
            index.sanityCheck();
            return index.entries() + " entries to " + index.lastEntry().timestamp();
        }
        if (name.endsWith(".txnindex")) {
            TransactionIndex index = new TransactionIndex(base(name), file);
            index.sanityCheck();
            return transactions(index);
        }
        return null;
    }

    private static String transactions(TransactionIndex index) {
        StringBuilder text = new StringBuilder();
        for (AbortedTxn txn : index.allAbortedTxns()) {
            text.append(txn.producerId()).append(' ').append(txn.firstOffset()).append(' ')
                .append(txn.lastOffset()).append(' ').append(txn.lastStableOffset()).append(',');
        }
        return text.toString();
    }

    /**
     * Lets Kafka recover a copy of the partition from its .log files alone, and compares producers
     * and aborted transactions with those in the files. Only of a log that begins at offset 0.
     */
    private static String replay(Path folder) throws Exception {
        List<Long> bases;
        try (Stream<Path> files = Files.list(folder)) {
            bases = files.map(file -> file.getFileName().toString()).filter(name -> name.endsWith(".log"))
                .map(FileOracle::base).sorted().toList();
        }
        if (bases.isEmpty() || bases.get(0) != 0) return null;
        Path copy = Files.createTempDirectory(scratch, "replay");
        TopicPartition partition = new TopicPartition("replay", 0);
        LeaderEpochFileCache epochs = new LeaderEpochFileCache(partition, new LeaderEpochCheckpointFile(
            LeaderEpochCheckpointFile.newFile(copy.toFile()), new LogDirFailureChannel(1)), new KafkaScheduler(1));
        ProducerStateManager producers = new ProducerStateManager(partition, copy.toFile(), 900_000,
            new ProducerStateManagerConfig(86_400_000, true), Time.SYSTEM);
        int snapshots = 0;
        int indexes = 0;
        for (long base : bases) {
            snapshots += sameProducers(folder, copy, producers);
            String log = String.format("%020d.log", base);
            Files.copy(folder.resolve(log), copy.resolve(log));
            LogSegment segment = LogSegment.open(
                copy.toFile(), base, new LogConfig(Map.of()), Time.SYSTEM, true, 0, false, "");
            segment.recover(producers, epochs);
            String theirs = transactions(segment.txnIndex());
            Path ours = folder.resolve(String.format("%020d.txnindex", base));
            String found = Files.exists(ours) ? transactions(new TransactionIndex(base, ours.toFile())) : "";
            if (!found.equals(theirs)) throw new IllegalStateException(ours + ": Kafka finds " + theirs);
            if (!found.isEmpty()) {
                same(ours.toFile(), copy.resolve(ours.getFileName()));
                indexes++;
            }
        }
        snapshots += sameProducers(folder, copy, producers);
        return snapshots + " snapshots, " + indexes + " transaction indexes";
    }

    private static int sameProducers(Path folder, Path copy, ProducerStateManager producers) throws Exception {
        Path ours = folder.resolve(String.format("%020d.snapshot", producers.mapEndOffset()));
        if (!Files.exists(ours)) return 0;
        Path theirs = copy.resolve("theirs.snapshot");
        ProducerStateManager.writeSnapshot(theirs.toFile(), producers.activeProducers(), false);
        String found = sortedProducers(ours);
        String wanted = sortedProducers(theirs);
        if (!found.equals(wanted)) throw new IllegalStateException(ours + " has " + found + " not " + wanted);
        return 1;
    }

    /** Without those that either side may have forgotten by now (producer.id.expiration.ms). */
    private static String sortedProducers(Path file) throws Exception {
        long expired = System.currentTimeMillis() - 86_400_000;
        Map<Long, String> sorted = new TreeMap<>();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file.toFile())) {
            if (entry.lastTimestamp() <= expired && entry.currentTxnFirstOffset().isEmpty()) continue;
            sorted.put(entry.producerId(), producer(entry));
        }
        return sorted.values().toString();
    }

    private static long base(String name) {
        return Long.parseLong(name.substring(0, name.indexOf('.')));
    }

    private static String partitionMetadata(File file, LogDirFailureChannel failures) throws Exception {
        Uuid id = new PartitionMetadataFile(file, failures).read().topicId();
        Path folder = Files.createTempDirectory(scratch, "partition");
        PartitionMetadataFile again =
            new PartitionMetadataFile(PartitionMetadataFile.newFile(folder.toFile()), failures);
        again.record(id);
        again.maybeFlush();
        same(file, folder.resolve("partition.metadata"));
        return id.toString();
    }

    private static String epochs(File file, LogDirFailureChannel failures) throws Exception {
        List<EpochEntry> entries = new LeaderEpochCheckpointFile(file, failures).read();
        Path folder = Files.createTempDirectory(scratch, "epochs");
        File copy = LeaderEpochCheckpointFile.newFile(folder.toFile());
        new LeaderEpochCheckpointFile(copy, failures).write(entries);
        same(file, copy.toPath());
        StringBuilder text = new StringBuilder();
        for (EpochEntry entry : entries) text.append(entry.epoch()).append(' ').append(entry.startOffset()).append(',');
        return text.toString();
    }

    private static String offsets(File file, LogDirFailureChannel failures) throws Exception {
        Map<TopicPartition, Long> found = new OffsetCheckpointFile(file, failures).read();
        Path copy = Files.createTempDirectory(scratch, "offsets").resolve("copy");
        new OffsetCheckpointFile(copy.toFile(), failures).write(found);
        if (!sortedLines(file.toPath()).equals(sortedLines(copy))) {
            throw new IllegalStateException("Kafka writes other lines");
        }
        Map<String, Long> sorted = new TreeMap<>();
        found.forEach((key, value) -> sorted.put(key.toString(), value));
        return sorted.toString();
    }

    private static List<String> sortedLines(Path path) throws Exception {
        return Arrays.stream(Files.readString(path, StandardCharsets.UTF_8).split("\n", -1)).sorted().toList();
    }

    private static String metaProperties(File file) throws Exception {
        Properties properties = PropertiesUtils.readPropertiesFile(file.getPath());
        MetaProperties meta = new MetaProperties.Builder(properties).build();
        return meta.clusterId().get() + " " + meta.nodeId().getAsInt() + " " + meta.directoryId().get();
    }

    private static String snapshot(File file) throws Exception {
        Map<Long, ProducerStateEntry> entries = new LinkedHashMap<>();
        StringBuilder text = new StringBuilder();
        for (ProducerStateEntry entry : ProducerStateManager.readSnapshot(file)) {
            entries.put(entry.producerId(), entry);
            text.append(producer(entry)).append(',');
        }
        Path copy = Files.createTempDirectory(scratch, "snapshot").resolve(file.getName());
        ProducerStateManager.writeSnapshot(copy.toFile(), entries, false);
        sameRows(Files.readAllBytes(file.toPath()), Files.readAllBytes(copy));
        return text.toString();
    }

    private static String producer(ProducerStateEntry entry) {
        return entry.producerId() + " " + entry.producerEpoch() + " " + lastSequence(entry) + " "
            + entry.firstDataOffset() + " " + entry.lastDataOffset() + " " + entry.lastTimestamp() + " "
            + entry.coordinatorEpoch() + " " + entry.currentTxnFirstOffset().orElse(-1L);
    }

    private static int lastSequence(ProducerStateEntry entry) {
        int last = -1;
        for (BatchMetadata batch : entry.batchMetadata()) last = batch.lastSeq();
        return last;
    }

    /** Numbers of decisions, 16 bytes each, follow Kafka's rows, and count for the checksum (bytes 2 to 5). */
    private static void sameRows(byte[] ours, byte[] theirs) {
        int numbers = ours.length - theirs.length;
        if (numbers > 0 && numbers % 16 == 0) {
            ours = Arrays.copyOf(ours, theirs.length);
            System.arraycopy(theirs, 2, ours, 2, 4);
        }
        int at = Arrays.mismatch(ours, theirs);
        if (at >= 0) throw new IllegalStateException("Kafka writes another byte at " + at);
    }

    private static void same(File ours, Path theirs) throws Exception {
        long at = Files.mismatch(ours.toPath(), theirs);
        if (at >= 0) throw new IllegalStateException("Kafka writes another byte at " + at);
    }
}
