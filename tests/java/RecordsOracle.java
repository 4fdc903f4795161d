import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.*;
import java.util.*;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.*;

/**
 * Reads and writes record batches with Apache Kafka's own classes, in a text form of one line per
 * record: offset, timestamp, key, value and headers, bytes in hexadecimal and "-" for null.
 *
 * read FILE...: prints "batch ..." and the records of each. write FOLDER: makes one file a codec.
 * markers FILE: writes transaction markers, two for each of three producers.
 */
public class RecordsOracle {
    public static void main(String[] args) throws Exception {
        if (args[0].equals("read")) {
            for (int i = 1; i < args.length; i++) read(Path.of(args[i]));
        } else if (args[0].equals("markers")) {
            markers(Path.of(args[1]));
        } else {
            write(Path.of(args[1]));
        }
    }

    static void markers(Path file) throws IOException {
        try (OutputStream out = Files.newOutputStream(file)) {
            for (int i = 0; i < 6; i++) {
                ControlRecordType type = i % 2 == 0 ? ControlRecordType.ABORT : ControlRecordType.COMMIT;
                MemoryRecords records = MemoryRecords.withEndTransactionMarker(10L + i, 1700000000000L + i,
                    i, 1L << 40 | i / 2, (short) (32765 + i / 2), new EndTransactionMarker(type, i * 1000 - 1));
                byte[] bytes = new byte[records.sizeInBytes()];
                records.buffer().get(bytes);
                out.write(bytes);
            }
        }
    }

    static void read(Path file) throws IOException {
        MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(Files.readAllBytes(file)));
        for (RecordBatch batch : records.batches()) {
            batch.ensureValid();
            System.out.println(String.join(" ", "batch", file.getFileName().toString(),
                batch.compressionType().name, String.valueOf(batch.baseOffset()),
                String.valueOf(batch.lastOffset()), String.valueOf(batch.maxTimestamp()),
                String.valueOf(batch.producerId()), String.valueOf(batch.producerEpoch()),
                String.valueOf(batch.baseSequence()), String.valueOf(batch.lastSequence()),
                String.valueOf(batch.partitionLeaderEpoch()), String.valueOf(batch.sizeInBytes()),
                String.valueOf(batch.checksum()), batch.timestampType().name));
            for (org.apache.kafka.common.record.internal.Record record : batch) System.out.println(text(record));
        }
    }

    static String text(org.apache.kafka.common.record.internal.Record record) {
        StringBuilder line = new StringBuilder();
        line.append(record.offset()).append(' ').append(record.timestamp()).append(' ');
        line.append(hex(record.key())).append(' ').append(hex(record.value()));
        for (Header header : record.headers()) {
            line.append(' ').append(hex(ByteBuffer.wrap(header.key().getBytes(StandardCharsets.UTF_8))));
            line.append('=').append(header.value() == null ? "-" : hex(ByteBuffer.wrap(header.value())));
        }
        return line.toString();
    }

    static String hex(ByteBuffer bytes) {
        if (bytes == null) return "-";
        byte[] copy = new byte[bytes.remaining()];
        bytes.duplicate().get(copy);
        return "x" + HexFormat.of().formatHex(copy);
    }

    static void write(Path folder) throws IOException {
        Compression[] codecs = {Compression.NONE, Compression.gzip().build(), Compression.snappy().build(),
            Compression.lz4().build(), Compression.zstd().build()};
        for (Compression codec : codecs) {
            MemoryRecordsBuilder builder = MemoryRecords.builder(ByteBuffer.allocate(1 << 16),
                RecordBatch.MAGIC_VALUE_V2, codec, TimestampType.CREATE_TIME, 100L, -1L, 4711L,
                (short) 3, 2147483646, false, false, 9);
            byte[] large = "lakelog ".repeat(12000).getBytes(StandardCharsets.UTF_8);
            builder.append(1000L, "key".getBytes(), "value".getBytes(), new Header[0]);
            builder.append(999L, (byte[]) null, (byte[]) null, new Header[] {new RecordHeader("n", (byte[]) null)});
            builder.append(1L << 40, new byte[0], new byte[0], new Header[] {
                new RecordHeader("a", new byte[] {1}), new RecordHeader("schlüssel", new byte[0])});
            builder.append(2000L, null, large, new Header[0]);
            for (int i = 0; i < 200; i++) builder.append(3000L + i, ("k" + i).getBytes(), large, new Header[0]);
            MemoryRecords records = builder.build();
            ByteBuffer buffer = records.buffer();
            byte[] bytes = new byte[buffer.remaining()];
            buffer.get(bytes);
            Files.write(folder.resolve(codec.type().name), bytes);
        }
    }
}
