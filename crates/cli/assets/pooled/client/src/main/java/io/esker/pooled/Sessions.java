package io.esker.pooled;

import com.datastax.oss.driver.api.core.CqlSession;
import com.datastax.oss.driver.api.core.config.DefaultDriverOption;
import com.datastax.oss.driver.api.core.config.DriverConfigLoader;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;

/** Sessions with nodes of Cassandra. */
final class Sessions {
    static final int PORT = 9042;
    private static final Duration PATIENCE = Duration.ofSeconds(20);

    private Sessions() {}

    /** A session whose statements are idempotent, so that the driver may repeat them. */
    static CqlSession open(String nodes, String consistency) {
        List<InetSocketAddress> contacts =
                List.of(nodes.split(",")).stream().map(node -> new InetSocketAddress(node, PORT)).toList();
        DriverConfigLoader config =
                DriverConfigLoader.programmaticBuilder()
                        .withDuration(DefaultDriverOption.REQUEST_TIMEOUT, PATIENCE)
                        .withDuration(DefaultDriverOption.CONNECTION_INIT_QUERY_TIMEOUT, PATIENCE)
                        .withDuration(DefaultDriverOption.METADATA_SCHEMA_REQUEST_TIMEOUT, PATIENCE)
                        .withDuration(DefaultDriverOption.CONTROL_CONNECTION_TIMEOUT, PATIENCE)
                        .withDuration(DefaultDriverOption.RECONNECTION_MAX_DELAY, Duration.ofSeconds(2))
                        .withBoolean(DefaultDriverOption.REQUEST_DEFAULT_IDEMPOTENCE, true)
                        .withString(DefaultDriverOption.REQUEST_CONSISTENCY, consistency)
                        .withBoolean(DefaultDriverOption.RECONNECT_ON_INIT, true)
                        .build();
        return CqlSession.builder()
                .addContactPoints(contacts)
                .withLocalDatacenter("datacenter1")
                .withConfigLoader(config)
                .build();
    }
}
