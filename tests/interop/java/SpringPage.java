import java.util.Map;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import org.springframework.kafka.annotation.EnableKafka;
import org.springframework.kafka.annotation.KafkaListener;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.DefaultKafkaConsumerFactory;
import org.springframework.kafka.core.DefaultKafkaProducerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.DeadLetterPublishingRecoverer;
import org.springframework.kafka.listener.DefaultErrorHandler;
import org.springframework.kafka.support.converter.StringJsonMessageConverter;
import org.springframework.messaging.handler.annotation.SendTo;
import org.springframework.util.backoff.FixedBackOff;

/** Runs the listener of the page until its standard input ends: BOOTSTRAP TOPIC. */
public class SpringPage {
    static String bootstrap;

    public record Order(int id, double amount) {}

    public record Invoice(int order, double total) {}

    @Configuration
    @EnableKafka
    public static class Billing {
        // FRAGMENT

        @Bean
        KafkaTemplate<Object, Object> template() {
            var template = new KafkaTemplate<Object, Object>(new DefaultKafkaProducerFactory<>(Map.of(
                "bootstrap.servers", bootstrap,
                "key.serializer", StringSerializer.class,
                "value.serializer", StringSerializer.class)));
            template.setMessageConverter(new StringJsonMessageConverter());
            return template;
        }

        @Bean
        ConcurrentKafkaListenerContainerFactory<Object, Object> kafkaListenerContainerFactory(
            KafkaTemplate<Object, Object> template, DefaultErrorHandler errorHandler) {
            var factory = new ConcurrentKafkaListenerContainerFactory<Object, Object>();
            factory.setConsumerFactory(new DefaultKafkaConsumerFactory<>(Map.of(
                "bootstrap.servers", bootstrap,
                "auto.offset.reset", "earliest",
                "key.deserializer", StringDeserializer.class,
                "value.deserializer", StringDeserializer.class)));
            factory.setRecordMessageConverter(new StringJsonMessageConverter());
            factory.setReplyTemplate(template);
            factory.setCommonErrorHandler(errorHandler);
            return factory;
        }
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (var context = new AnnotationConfigApplicationContext(Billing.class)) {
            while (System.in.read() >= 0) {}
        }
    }
}
