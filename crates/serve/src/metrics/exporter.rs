//! The server of `/metrics`.

use std::net::SocketAddr;

use prometheus::TEXT_FORMAT;

use super::process::Process;
use super::{Collector, Families};
use crate::error::Result;
use crate::http::{self, Answer, Server};

/// The option that names its address.
const FLAG: &str = "--metrics";

/// A page for people beside the metrics: its path, and its text.
pub type Page = (&'static str, Box<dyn Fn() -> String + Send + Sync>);

/// Answers for metrics until it is dropped.
pub struct Exporter {
    _server: Server,
    address: SocketAddr,
}

impl Exporter {
    /// Answers at an address; port 0 is any that is free. `commit` is the one that the program was built from.
    ///
    /// # Errors
    /// `Conflict` when the address cannot be had.
    pub fn start(
        address: SocketAddr,
        commit: &'static str,
        mut collectors: Vec<Box<dyn Collector>>,
        pages: Vec<Page>,
    ) -> Result<Exporter> {
        collectors.push(Box::new(Process { commit }));
        let paths: Vec<&str> = pages.iter().map(|(path, _)| *path).chain(["/metrics"]).collect();
        let unknown = format!("there is {}", paths.join(" and "));
        let answer = move |url: &str| match url.split('?').next().unwrap_or_default() {
            "/metrics" => metrics(&collectors),
            path => match pages.iter().find(|(known, _)| *known == path) {
                Some((_, page)) => http::text("text/plain; charset=utf-8", page()),
                None => http::error(404, &unknown),
            },
        };
        let (server, address) = Server::start_at(address, FLAG, answer)?;
        Ok(Exporter { _server: server, address })
    }

    /// Where Prometheus finds them, in words.
    #[must_use]
    pub fn place(&self) -> String {
        format!("metrics at http://{}/metrics", self.address)
    }
}

fn metrics(collectors: &[Box<dyn Collector>]) -> Answer {
    let mut families = Families::default();
    collectors.iter().for_each(|one| one.collect(&mut families));
    match families.text() {
        Ok(text) => http::text(TEXT_FORMAT, text),
        Err(error) => http::error(500, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use super::*;

    struct One;

    impl Collector for One {
        fn collect(&self, families: &mut Families) {
            families.counter("one_total", "One", 1u64);
        }
    }

    fn any_port() -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], 0))
    }

    fn get(exporter: &Exporter, path: &str) -> String {
        let mut stream = TcpStream::connect(exporter.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn exporter_answers_for_metrics_and_pages_and_says_what_there_is() {
        let page: Page = ("/status", Box::new(|| "all is well\n".to_owned()));
        let exporter =
            Exporter::start(any_port(), "0123", vec![Box::new(One)], vec![page]).unwrap();
        let metrics = get(&exporter, "/metrics");
        assert!(metrics.contains("\r\nContent-Type: text/plain; version=0.0.4\r\n"), "{metrics}");
        assert!(metrics.contains("\none_total 1\n"), "{metrics}");
        assert!(metrics.contains("\nesker_build_info{version=\""), "{metrics}");
        assert!(get(&exporter, "/metrics?a=b").contains("\none_total 1\n"));
        assert!(get(&exporter, "/status").ends_with("all is well\n"));
        let other = get(&exporter, "/other");
        assert!(
            other.starts_with("HTTP/1.0 404") && other.contains("there is /status and /metrics")
        );
    }

    #[test]
    fn busy_port_is_refused_with_advice() {
        let exporter = Exporter::start(any_port(), "0123", Vec::new(), Vec::new()).unwrap();
        let again = Exporter::start(exporter.address, "0123", Vec::new(), Vec::new());
        let refusal = again.err().expect("the port is taken");
        assert!(refusal.to_string().contains("choose another address with --metrics"));
    }
}
