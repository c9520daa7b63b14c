//! A small HTTP server on a thread of its own: the metrics of a process, and its live page.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread::JoinHandle;

use esker_base::{ErrorKind, thread};

use crate::failure::{Failure, Result};

/// The answer to a request.
pub(crate) type Answer = tiny_http::ResponseBox;

/// Answers requests one after another, until it is dropped.
pub(crate) struct Server {
    http: Arc<tiny_http::Server>,
    address: SocketAddr,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Listens at an address; port 0 is any that is free. `flag` is the option that named the address, and `answer`
    /// is given the path and the query of a request.
    ///
    /// # Errors
    /// `Conflict` when the address cannot be had.
    pub(crate) fn start(
        address: SocketAddr,
        flag: &str,
        answer: impl Fn(&str) -> Answer + Send + 'static,
    ) -> Result<Server> {
        let refused = |error: &dyn fmt::Display| {
            let why = format!("{address}: {error}; choose another address with {flag}");
            Failure::new(ErrorKind::Conflict, why)
        };
        let http = tiny_http::Server::http(address).map_err(|error| refused(&error))?;
        let address = http.server_addr().to_ip().unwrap_or(address);
        let http = Arc::new(http);
        let requests = http.clone();
        let work = move || {
            for request in requests.incoming_requests() {
                let response = answer(request.url());
                let _ = request.respond(response); // whoever asked is gone
            }
        };
        let name = flag.trim_start_matches('-');
        let thread = thread::spawn(name, work).map_err(|error| refused(&error))?;
        Ok(Server { http, address, thread: Some(thread) })
    }

    /// Where it listens.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.http.unblock();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A text of some type: the value of `Content-Type`.
pub(crate) fn text(content_type: &str, text: impl Into<String>) -> Answer {
    let kind = format!("Content-Type: {content_type}").parse::<tiny_http::Header>();
    let kind = kind.expect("a content type has no line break");
    tiny_http::Response::from_string(text).with_header(kind).boxed()
}

/// An error, with a line that says why.
pub(crate) fn error(code: u16, why: &str) -> Answer {
    tiny_http::Response::from_string(format!("{why}\n")).with_status_code(code).boxed()
}
