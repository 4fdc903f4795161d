import java.util.*;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.*;
import org.apache.kafka.common.*;

/**
 * Assigns with Apache Kafka's own assignors. One case a line on standard input:
 * "assignor topic=count,... member[/instance]=topic+topic,..."; one line out for each:
 * "member=topic-partition+...,..." with members and partitions in order.
 */
public class AssignorsOracle {
    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) System.out.println(assign(lines.nextLine().split(" ")));
    }

    static String assign(String[] parts) {
        ConsumerPartitionAssignor assignor =
            parts[0].equals("range") ? new RangeAssignor() : new RoundRobinAssignor();
        Node node = new Node(1, "h", 1);
        Node[] nodes = {node};
        List<PartitionInfo> partitions = new ArrayList<>();
        for (String item : parts[1].split(",")) {
            String[] topic = item.split("=");
            for (int i = 0; i < Integer.parseInt(topic[1]); i++)
                partitions.add(new PartitionInfo(topic[0], i, node, nodes, nodes));
        }
        Map<String, Subscription> members = new HashMap<>();
        for (String item : parts[2].split(",")) {
            String[] member = item.split("=", 2);
            String[] name = member[0].split("/");
            List<String> topics = member[1].isEmpty() ? List.of() : List.of(member[1].split("\\+"));
            Subscription subscription = new Subscription(topics);
            if (name.length > 1) subscription.setGroupInstanceId(Optional.of(name[1]));
            members.put(name[0], subscription);
        }
        Cluster cluster = new Cluster("c", List.of(node), partitions, Set.of(), Set.of());
        Map<String, Assignment> shares =
            assignor.assign(cluster, new GroupSubscription(members)).groupAssignment();
        StringJoiner line = new StringJoiner(",");
        for (String member : new TreeSet<>(shares.keySet())) {
            TreeSet<String> owned = new TreeSet<>();
            for (TopicPartition p : shares.get(member).partitions()) owned.add(p.toString());
            line.add(member + "=" + String.join("+", owned));
        }
        return line.toString();
    }
}
