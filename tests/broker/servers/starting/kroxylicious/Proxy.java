import io.kroxylicious.proxy.KafkaProxy;
import io.kroxylicious.proxy.config.ConfigParser;
import io.kroxylicious.proxy.internal.config.Features;
import java.nio.file.Files;
import java.nio.file.Path;

/** Runs Kroxylicious with the configuration of the file that the argument names, until it is ended. */
final class Proxy {
    public static void main(String[] arguments) throws Exception {
        var parser = new ConfigParser();
        var configuration = parser.parseConfiguration(Files.readString(Path.of(arguments[0])));
        try (var proxy = new KafkaProxy(parser, configuration, Features.defaultFeatures())) {
            proxy.startup();
            proxy.block();
        }
    }
}
