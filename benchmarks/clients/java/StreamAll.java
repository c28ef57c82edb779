// Publishes a topic's records to another topic with Kafka Streams, exactly once.
//
//     java -cp CLASSPATH StreamAll.java BOOTSTRAP TOPIC RESULTS GROUP TOTAL WARM_UP INTERVAL_MILLIS
//
// Prints: records, bytes, seconds and CPU seconds after the first WARM_UP records until all are
// committed, and WARM_UP. The other settings are the defaults of Kafka Streams.

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;

public class StreamAll {
    private static long records = 0, bytes = 0, begun = 0, begunCpu = 0;

    public static void main(String[] args) throws Exception {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long total = Long.parseLong(args[4]);
        long warmUp = Long.parseLong(args[5]);
        var settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("application.id", args[3]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", args[6]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("state.dir", Files.createTempDirectory("streams").toString());
        // One broker.
        settings.put("replication.factor", "1");
        var done = new CountDownLatch(1);
        var builder = new StreamsBuilder();
        var bytesOnly = Serdes.ByteArray();
        builder.stream(args[1], Consumed.with(bytesOnly, bytesOnly))
            .peek((key, value) -> {
                bytes += value.length;
                records += 1;
                if (records == warmUp) {
                    begun = System.nanoTime();
                    begunCpu = system.getProcessCpuTime();
                }
                if (records == total) {
                    done.countDown();
                }
            })
            .to(args[2], Produced.with(bytesOnly, bytesOnly));
        var streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        done.await();
        // This commits.
        streams.close();
        double seconds = (System.nanoTime() - begun) / 1e9;
        double cpu = (system.getProcessCpuTime() - begunCpu) / 1e9;
        System.out.println(records + " " + bytes + " " + seconds + " " + cpu + " " + warmUp);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
