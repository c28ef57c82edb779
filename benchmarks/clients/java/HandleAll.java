// Handles a topic's records with Confluent's parallel-consumer.
//
//     java -cp CLASSPATH HandleAll.java BOOTSTRAP TOPIC GROUP TOTAL CONCURRENCY ORDERING MILLIS
//
// Prints: records, bytes, seconds and CPU seconds from the first record to the last, and 1.

import com.sun.management.OperatingSystemMXBean;
import io.confluent.parallelconsumer.ParallelConsumerOptions;
import io.confluent.parallelconsumer.ParallelConsumerOptions.ProcessingOrder;
import io.confluent.parallelconsumer.ParallelStreamProcessor;
import java.lang.management.ManagementFactory;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

public class HandleAll {
    public static void main(String[] args) throws InterruptedException {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long total = Long.parseLong(args[3]);
        long millis = Long.parseLong(args[6]);
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", args[0],
            "group.id", args[2],
            "auto.offset.reset", "earliest",
            "enable.auto.commit", "false");
        var deserializer = new ByteArrayDeserializer();
        var consumer = new KafkaConsumer<>(settings, deserializer, deserializer);
        ParallelConsumerOptions<byte[], byte[]> options =
            ParallelConsumerOptions.<byte[], byte[]>builder()
                .ordering(ProcessingOrder.valueOf(args[5]))
                .maxConcurrency(Integer.parseInt(args[4]))
                .consumer(consumer)
                .build();
        var processor = ParallelStreamProcessor.createEosStreamProcessor(options);
        var begun = new AtomicLong();
        var begunCpu = new AtomicLong();
        var records = new AtomicLong();
        var bytes = new AtomicLong();
        var done = new CountDownLatch(1);
        processor.subscribe(List.of(args[1]));
        processor.poll(context -> {
            if (begun.get() == 0 && begun.compareAndSet(0, System.nanoTime())) {
                begunCpu.set(system.getProcessCpuTime());
            }
            if (millis > 0) {
                try {
                    Thread.sleep(millis);
                } catch (InterruptedException error) {
                    throw new IllegalStateException(error);
                }
            }
            bytes.addAndGet(context.getSingleConsumerRecord().value().length);
            if (records.incrementAndGet() == total) {
                done.countDown();
            }
        });
        done.await();
        double seconds = (System.nanoTime() - begun.get()) / 1e9;
        double cpu = (system.getProcessCpuTime() - begunCpu.get()) / 1e9;
        System.out.println(records + " " + bytes + " " + seconds + " " + cpu + " 1");
        System.out.flush();
        // What is to be committed and closed is no part of this.
        Runtime.getRuntime().halt(0);
    }
}
