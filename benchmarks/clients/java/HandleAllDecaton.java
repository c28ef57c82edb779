// Handles a topic's records with LINE's Decaton, in the order of keys, with its defaults.
//
//     java -cp CLASSPATH HandleAllDecaton.java BOOTSTRAP TOPIC GROUP TOTAL THREADS MILLIS
//
// THREADS are those of each partition.
// Prints: records, bytes, seconds and CPU seconds from the first record to the last, and 1.

import com.linecorp.decaton.processor.TaskMetadata;
import com.linecorp.decaton.processor.runtime.DecatonTask;
import com.linecorp.decaton.processor.runtime.ProcessorProperties;
import com.linecorp.decaton.processor.runtime.ProcessorsBuilder;
import com.linecorp.decaton.processor.runtime.Property;
import com.linecorp.decaton.processor.runtime.StaticPropertySupplier;
import com.linecorp.decaton.processor.runtime.SubscriptionBuilder;
import com.linecorp.decaton.processor.runtime.TaskExtractor;
import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

public class HandleAllDecaton {
    public static void main(String[] args) throws InterruptedException {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long total = Long.parseLong(args[3]);
        long millis = Long.parseLong(args[5]);
        var settings = new Properties();
        settings.setProperty("bootstrap.servers", args[0]);
        settings.setProperty("group.id", args[2]);
        settings.setProperty("client.id", args[2]);
        settings.setProperty("auto.offset.reset", "earliest");
        var begun = new AtomicLong();
        var begunCpu = new AtomicLong();
        var records = new AtomicLong();
        var bytes = new AtomicLong();
        var done = new CountDownLatch(1);
        TaskExtractor<byte[]> whole = record ->
            new DecatonTask<>(TaskMetadata.builder().build(), record.value(), record.value());
        SubscriptionBuilder.newBuilder(args[2])
            .consumerConfig(settings)
            .addProperties(StaticPropertySupplier.of(Property.ofStatic(
                ProcessorProperties.CONFIG_PARTITION_CONCURRENCY, Integer.parseInt(args[4]))))
            .processorsBuilder(ProcessorsBuilder.consuming(args[1], whole).thenProcess((context, value) -> {
                if (begun.get() == 0 && begun.compareAndSet(0, System.nanoTime())) {
                    begunCpu.set(system.getProcessCpuTime());
                }
                if (millis > 0) {
                    Thread.sleep(millis);
                }
                bytes.addAndGet(value.length);
                if (records.incrementAndGet() == total) {
                    done.countDown();
                }
            }))
            .buildAndStart();
        done.await();
        double seconds = (System.nanoTime() - begun.get()) / 1e9;
        double cpu = (system.getProcessCpuTime() - begunCpu.get()) / 1e9;
        System.out.println(records + " " + bytes + " " + seconds + " " + cpu + " 1");
        System.out.flush();
        // What is to be committed and closed is no part of this.
        Runtime.getRuntime().halt(0);
    }
}
