// Handles a topic's records with KPipe, a virtual thread for each, in the order of keys, with its
// defaults.
//
//     java -cp CLASSPATH HandleAllKPipe.java BOOTSTRAP TOPIC GROUP TOTAL MILLIS
//
// Prints: records, bytes, seconds and CPU seconds from the first record to the last, and 1.

import com.sun.management.OperatingSystemMXBean;
import io.github.eschizoid.kpipe.KPipe;
import io.github.eschizoid.kpipe.consumer.ProcessingMode;
import java.lang.management.ManagementFactory;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;

public class HandleAllKPipe {
    public static void main(String[] args) throws InterruptedException {
        var system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long total = Long.parseLong(args[3]);
        long millis = Long.parseLong(args[4]);
        var deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer";
        var settings = new Properties();
        settings.setProperty("bootstrap.servers", args[0]);
        settings.setProperty("group.id", args[2]);
        settings.setProperty("auto.offset.reset", "earliest");
        settings.setProperty("enable.auto.commit", "false");
        settings.setProperty("key.deserializer", deserializer);
        settings.setProperty("value.deserializer", deserializer);
        var begun = new AtomicLong();
        var begunCpu = new AtomicLong();
        var records = new AtomicLong();
        var bytes = new AtomicLong();
        var done = new CountDownLatch(1);
        KPipe.bytes(args[1], settings)
            .withProcessingMode(ProcessingMode.KEY_ORDERED)
            .toCustom(value -> {
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
                bytes.addAndGet(value.length);
                if (records.incrementAndGet() == total) {
                    done.countDown();
                }
            })
            .start();
        done.await();
        double seconds = (System.nanoTime() - begun.get()) / 1e9;
        double cpu = (system.getProcessCpuTime() - begunCpu.get()) / 1e9;
        System.out.println(records + " " + bytes + " " + seconds + " " + cpu + " 1");
        System.out.flush();
        // What is to be committed and closed is no part of this.
        Runtime.getRuntime().halt(0);
    }
}
