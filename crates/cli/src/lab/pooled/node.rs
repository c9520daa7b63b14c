//! Nodes of Cassandra: configuration, start, end.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use super::jars::Jars;
use crate::lab::groups::Groups;
use crate::lab::programs::{Run, Server, folder, within, write};

/// How long a node may take to listen. On slow drives the replay of its log takes minutes.
const READY: Duration = Duration::from_secs(600);
const ENDING: Duration = Duration::from_secs(1200);
const LISTENS: &str = "Starting listening for CQL clients";
const LOGBACK: &str = r#"<configuration>
<appender name="O" class="ch.qos.logback.core.ConsoleAppender">
<encoder><pattern>%-5level %date{ISO8601} %msg%n</pattern></encoder>
</appender>
<root level="INFO"><appender-ref ref="O"/></root>
</configuration>
"#;
/// Packages that Cassandra reaches into, of those that Java 17 closes.
const EXPORTS: &str = include_str!("../../../assets/pooled/server/exports");
const OPENS: &str = include_str!("../../../assets/pooled/server/opens");
const YAML: &str = include_str!("../../../assets/pooled/server/cassandra.yaml");

/// The places and sizes of a node.
pub(super) struct NodeSetup<'a> {
    /// From 0.
    pub(super) number: u32,
    /// A node of its cluster that is there: itself, if it is the first one.
    pub(super) seed: u32,
    /// Its first token, where several share a ring.
    pub(super) token: Option<i64>,
    /// Where its data is.
    pub(super) files: &'a Path,
    /// Where its configuration and its log are.
    pub(super) run: &'a Path,
    /// Its heap, in bytes.
    pub(super) heap_bytes: u64,
    /// Its memory, in bytes.
    pub(super) memory_bytes: u64,
}

/// The address of a node.
pub(super) fn address(number: u32) -> String {
    format!("127.0.0.{}", number + 1)
}

impl NodeSetup<'_> {
    fn configuration(&self) -> String {
        let memtable_mib = (self.heap_bytes >> 20) / 3;
        YAML.replace("{address}", &address(self.number))
            .replace("{seed}", &address(self.seed))
            .replace("{memtable}", &format!("{memtable_mib}MiB"))
            .replace("{files}", &self.files.display().to_string())
    }

    /// Starts the node, and returns before it listens.
    pub(super) fn start(&self, jars: &Jars, groups: &Groups) -> Run<Server> {
        let home: PathBuf = folder(&self.run.join(format!("node-{}", self.number)))?;
        let conf = folder(&home.join("conf"))?;
        let temporary = folder(&home.join("tmp"))?;
        write(&conf.join("cassandra.yaml"), &self.configuration())?;
        write(&conf.join("logback.xml"), LOGBACK)?;
        let mut command = within(&groups.node(self.number, self.memory_bytes)?, "java");
        self.arguments(&mut command, jars, &conf, &temporary)?;
        Server::start(&format!("Cassandra {}", self.number), &mut command, &home.join("log"))
    }

    fn arguments(&self, command: &mut Command, jars: &Jars, conf: &Path, temporary: &Path) -> Run {
        let heap = self.heap_bytes >> 20;
        command.arg(format!("-Xms{heap}m")).arg(format!("-Xmx{heap}m"));
        command.args(["-XX:+UseSerialGC", "-XX:MaxDirectMemorySize=256m"]);
        for (flag, list) in [("--add-exports", EXPORTS), ("--add-opens", OPENS)] {
            for package in list.split_whitespace() {
                command.arg(flag).arg(format!("{package}=ALL-UNNAMED"));
            }
        }
        command.arg(format!("-javaagent:{}", jars.agent()?));
        // Alone, it has nobody to hear of.
        let ring_delay = if self.token.is_some() { "8000" } else { "1000" };
        let property = |name: &str, value: &str| format!("-D{name}={value}");
        command.args([
            property("jdk.attach.allowAttachSelf", "true"),
            property("io.netty.tryReflectionSetAccessible", "true"),
            property("java.io.tmpdir", &temporary.display().to_string()),
            property("cassandra.config", &format!("file://{}/cassandra.yaml", conf.display())),
            property("cassandra.storagedir", &self.files.display().to_string()),
            property("cassandra-foreground", "yes"),
            property("cassandra.ring_delay_ms", ring_delay),
            property("cassandra.skip_wait_for_gossip_to_settle", "0"),
            property("cassandra.superuser_setup_delay_ms", "0"),
            property("cassandra.consistent.rangemovement", "false"),
            property(
                "cassandra.initial_token",
                &self.token.map_or(String::new(), |token| token.to_string()),
            ),
        ]);
        command.arg("-cp").arg(format!("{}:{}", conf.display(), jars.server));
        command.arg("org.apache.cassandra.service.CassandraDaemon");
        Ok(())
    }
}

/// Waits until a node listens.
pub(super) fn until_ready(node: &mut Server) -> Run {
    node.until(READY, |said| said.contains(LISTENS).then_some(()))
}

/// Ends a node in order.
pub(super) fn end(node: Server) -> Run {
    node.end(ENDING)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_has_no_gap() {
        let setup = NodeSetup {
            number: 1,
            seed: 0,
            token: None,
            files: Path::new("/run/files-1"),
            run: Path::new("/run"),
            heap_bytes: 768 << 20,
            memory_bytes: 1 << 30,
        };
        let text = setup.configuration();
        for part in [
            "listen_address: 127.0.0.2",
            "seeds: \"127.0.0.1\"",
            "256MiB",
            "/run/files-1/commitlog",
        ] {
            assert!(text.contains(part), "{part} is missing:\n{text}");
        }
        let gaps = ["{address}", "{seed}", "{memtable}", "{files}"];
        assert!(gaps.iter().all(|gap| YAML.contains(gap) && !text.contains(gap)));
    }
}
