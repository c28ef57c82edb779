import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.Collections;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Assignment;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.GroupSubscription;
import org.apache.kafka.clients.consumer.ConsumerPartitionAssignor.Subscription;
import org.apache.kafka.clients.consumer.CooperativeStickyAssignor;
import org.apache.kafka.clients.consumer.RangeAssignor;
import org.apache.kafka.clients.consumer.RoundRobinAssignor;
import org.apache.kafka.clients.consumer.StickyAssignor;
import org.apache.kafka.clients.consumer.internals.AbstractStickyAssignor;
import org.apache.kafka.clients.consumer.internals.ConsumerProtocol;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.TopicPartition;

/**
 * Does what the leader of a group does in Java, with the subscriptions as they come over the wire.
 *
 * <p>One JSON object a line from standard input: assignor, partitions (topic: count), members
 * ([id, instance id or null, subscription in base64]), and perhaps racks (topic: the racks of the
 * replicas of each partition). One a line to standard output: assignments
 * ({member id: assignment in base64}), subscriptions as Java itself would write them, and, for
 * cooperative-sticky, plan: the assignment before anything was withheld. The object
 * {"generation": n, "assignor": name, "partitions": [numbers of topic orders]} is answered with the
 * assignor's user data after such an assignment.
 */
public class Assignors {
    /** The sticky plan: cooperative-sticky would withhold from it. */
    static class Plan extends AbstractStickyAssignor {
        @Override
        public String name() {
            return "plan";
        }

        @Override
        protected MemberData memberData(Subscription subscription) {
            return new MemberData(subscription.ownedPartitions(), subscription.generationId());
        }
    }

    static final ObjectMapper JSON = new ObjectMapper();

    static ConsumerPartitionAssignor assignor(String name) {
        switch (name) {
            case "range": return new RangeAssignor();
            case "roundrobin": return new RoundRobinAssignor();
            case "sticky": return new StickyAssignor();
            case "cooperative-sticky": return new CooperativeStickyAssignor();
            default: throw new IllegalArgumentException(name);
        }
    }

    static String base64(ByteBuffer buffer) {
        byte[] bytes = new byte[buffer.remaining()];
        buffer.duplicate().get(bytes);
        return Base64.getEncoder().encodeToString(bytes);
    }

    static Map<String, Subscription> subscriptions(JsonNode members) {
        Map<String, Subscription> subscriptions = new HashMap<>();
        for (JsonNode member : members) {
            byte[] bytes = Base64.getDecoder().decode(member.get(2).asText());
            Subscription subscription = ConsumerProtocol.deserializeSubscription(ByteBuffer.wrap(bytes));
            if (!member.get(1).isNull())
                subscription.setGroupInstanceId(Optional.of(member.get(1).asText()));
            subscriptions.put(member.get(0).asText(), subscription);
        }
        return subscriptions;
    }

    static Node node(Map<String, Node> nodes, String rack) {
        return nodes.computeIfAbsent(rack, r -> new Node(nodes.size() + 1, "localhost", 9092, r.isEmpty() ? null : r));
    }

    static Cluster cluster(JsonNode group) {
        Map<String, Node> nodes = new HashMap<>();
        List<PartitionInfo> infos = new ArrayList<>();
        for (Iterator<Map.Entry<String, JsonNode>> it = group.get("partitions").fields(); it.hasNext(); ) {
            Map.Entry<String, JsonNode> topic = it.next();
            for (int i = 0; i < topic.getValue().asInt(); i++) {
                List<Node> replicas = new ArrayList<>();
                if (group.has("racks"))
                    for (JsonNode rack : group.get("racks").get(topic.getKey()).get(i))
                        replicas.add(node(nodes, rack.asText()));
                else
                    replicas.add(node(nodes, ""));
                Node[] array = replicas.toArray(new Node[0]);
                infos.add(new PartitionInfo(topic.getKey(), i, array[0], array, array));
            }
        }
        return new Cluster("test", nodes.values(), infos, new HashSet<>(), new HashSet<>());
    }

    static Map<String, Assignment> assign(ConsumerPartitionAssignor assignor, JsonNode group) {
        return assignor.assign(
            cluster(group),
            new GroupSubscription(subscriptions(group.get("members")))).groupAssignment();
    }

    static ObjectNode encoded(Map<String, Assignment> assignments) {
        ObjectNode node = JSON.createObjectNode();
        assignments.forEach((member, assignment) ->
            node.put(member, base64(ConsumerProtocol.serializeAssignment(assignment))));
        return node;
    }

    static ObjectNode answer(JsonNode question) {
        ObjectNode answer = JSON.createObjectNode();
        if (question.has("generation")) {
            ConsumerPartitionAssignor assignor = assignor(question.get("assignor").asText());
            List<TopicPartition> assigned = new ArrayList<>();
            for (JsonNode number : question.get("partitions"))
                assigned.add(new TopicPartition("orders", number.asInt()));
            assignor.onAssignment(
                new Assignment(assigned),
                new ConsumerGroupMetadata("g", question.get("generation").asInt(), "m", Optional.empty()));
            answer.put("user_data", base64(assignor.subscriptionUserData(Collections.emptySet())));
            return answer;
        }
        String name = question.get("assignor").asText();
        answer.set("assignments", encoded(assign(assignor(name), question)));
        if (name.equals("cooperative-sticky"))
            answer.set("plan", encoded(assign(new Plan(), question)));
        ArrayNode written = answer.putArray("subscriptions");
        Map<String, Subscription> subscriptions = subscriptions(question.get("members"));
        for (JsonNode member : question.get("members")) {
            short version = ByteBuffer.wrap(Base64.getDecoder().decode(member.get(2).asText())).getShort();
            written.add(base64(ConsumerProtocol.serializeSubscription(
                subscriptions.get(member.get(0).asText()), version)));
        }
        return answer;
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine())
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
    }
}
