import java.io.*;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import org.apache.kafka.common.protocol.*;

/**
 * Reads messages with the classes that Apache Kafka generates from its schemas, and writes them back.
 *
 * Both directions are frames, all numbers big-endian:
 * in: int16 length and class name, int16 version, int32 length and bytes;
 * out: int8 (0 well, 1 failed), int32 length and bytes, or the failure as text.
 */
public class WireOracle {
    public static void main(String[] args) throws Exception {
        DataInputStream in = new DataInputStream(new BufferedInputStream(System.in));
        DataOutputStream out = new DataOutputStream(new BufferedOutputStream(System.out));
        while (true) {
            String name;
            try {
                name = in.readUTF();
            } catch (EOFException e) {
                return;
            }
            short version = in.readShort();
            byte[] bytes = in.readNBytes(in.readInt());
            byte status = 0;
            byte[] answer;
            try {
                answer = again(name, version, bytes);
            } catch (Exception e) {
                status = 1;
                answer = e.toString().getBytes(StandardCharsets.UTF_8);
            }
            out.writeByte(status);
            out.writeInt(answer.length);
            out.write(answer);
            if (in.available() == 0) out.flush();
        }
    }

    static byte[] again(String name, short version, byte[] bytes) throws Exception {
        Message message = (Message) Class.forName(name).getDeclaredConstructor().newInstance();
        ByteBuffer buffer = ByteBuffer.wrap(bytes);
        message.read(new ByteBufferAccessor(buffer), version);
        if (buffer.hasRemaining()) throw new IllegalStateException(buffer.remaining() + " bytes left over");
        ByteBuffer written = MessageUtil.toByteBufferAccessor(message, version).buffer();
        byte[] answer = new byte[written.remaining()];
        written.get(answer);
        return answer;
    }
}
