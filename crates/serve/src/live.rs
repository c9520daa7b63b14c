//! The page of a run that goes on: on loopback, for clients with the token in their URL.
//!
//! Invariants
//! 1. While nobody asks, a run pays a load of one atomic for each interval: nothing is copied, sampled or drawn.
//! 2. Nothing is answered without the token.
//! 3. Drawing happens on the thread of the server, and without a lock that a run waits for.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use esker_base::{Clock, ErrorKind, Nanos};
use esker_report::{Page, State, Subject};
use parking_lot::{Condvar, Mutex};

use crate::error::{Result, ServeError};
use crate::http::{self, Answer, Server};
use crate::token::Token;

const FLAG: &str = "--live";
/// A page that has not asked for so long is closed.
const OPEN: Duration = Duration::from_secs(5);
/// How long the end waits for an open page to take the report.
const PATIENCE: Duration = Duration::from_secs(3);
/// A page may run its own scripts, and ask the server that it came from.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// A live page, until it is dropped.
pub struct Live<S> {
    shared: Arc<Shared<S>>,
    server: Server,
    address: SocketAddr,
}

struct Shared<S> {
    subject: S,
    token: Token,
    clock: Clock,
    began: Nanos,
    /// When a page asked last, in nanoseconds since the begin and one; 0 is never.
    asked_ns: AtomicU64,
    end: Mutex<End>,
    told: Condvar,
}

#[derive(Default)]
struct End {
    /// The finished report.
    report: Option<String>,
    /// Whether a page has it.
    is_told: bool,
}

impl<S: Subject> Live<S> {
    /// Serves a page at a port of 127.0.0.1; 0 is any that is free.
    ///
    /// # Errors
    /// `Conflict` when the port cannot be had; the system's when it has no randomness to give.
    pub fn start(port: u16, subject: S) -> Result<Live<S>> {
        let token = Token::random().map_err(|error| {
            ServeError::new(
                ErrorKind::from(&error),
                format!("{FLAG} needs a random token: {error}"),
            )
        })?;
        let clock = Clock::real();
        let shared = Arc::new(Shared {
            subject,
            token,
            began: clock.now(),
            clock,
            asked_ns: AtomicU64::new(0),
            end: Mutex::default(),
            told: Condvar::new(),
        });
        let answering = shared.clone();
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let answer = move |url: &str| answering.answer(url);
        let (server, address) = Server::start_at(address, FLAG, answer)?;
        Ok(Live { shared, server, address })
    }

    /// Where it is: the address with the token, for the user alone.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/{}/", self.address, self.shared.token.text())
    }

    /// Its subject.
    #[must_use]
    pub fn subject(&self) -> &S {
        &self.shared.subject
    }

    /// Whether a page has asked lately.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.shared.is_open()
    }

    /// All has ended, and this is the report: a page that is open becomes it.
    pub fn end(self, report: String) {
        let Live { shared, server, .. } = self;
        let mut end = shared.end.lock();
        end.report = Some(report);
        let until = shared.clock.now() + PATIENCE;
        while shared.is_open() && !end.is_told {
            let left = until.since(shared.clock.now());
            if left.is_zero() {
                break;
            }
            shared.told.wait_for(&mut end, left);
        }
        drop(end);
        drop(server);
    }
}

impl<S: Subject> Shared<S> {
    fn is_open(&self) -> bool {
        let asked_ns = self.asked_ns.load(Ordering::Relaxed);
        asked_ns > 0 && self.clock.now().since(self.began + Duration::from_nanos(asked_ns)) < OPEN
    }

    fn answer(&self, url: &str) -> Answer {
        let (path, query) = url.split_once('?').unwrap_or((url, ""));
        let parts = path.strip_prefix('/').and_then(|path| path.split_once('/'));
        let Some((_, page)) = parts.filter(|(token, _)| self.token.is(token)) else {
            return http::error(
                403,
                "the token is missing or wrong: open the URL that was printed",
            );
        };
        match page {
            "" => private(http::text("text/html; charset=utf-8", self.page())),
            "state" => {
                let ns = self.clock.now().since(self.began).as_nanos();
                let ns = u64::try_from(ns).unwrap_or(u64::MAX).max(1);
                self.asked_ns.store(ns, Ordering::Relaxed);
                let since = query.strip_prefix("since=").and_then(|since| since.parse().ok());
                private(http::text("application/json", self.state(since.unwrap_or(0))))
            }
            _ => http::error(404, "there is the page, and its state"),
        }
    }

    /// The page that asks for the state; the report, once there is one.
    fn page(&self) -> String {
        let report = self.end.lock().report.clone();
        report.unwrap_or_else(|| Page::new(self.subject.title(), "").live())
    }

    fn state(&self, since: u64) -> String {
        let mut end = self.end.lock();
        if let Some(report) = &end.report {
            let text = State::Ended(report).json(since);
            end.is_told = true;
            self.told.notify_all();
            return text;
        }
        drop(end);
        match self.subject.now(since) {
            Some((version, page)) => State::Running(&page).json(version),
            None => State::Unchanged.json(since),
        }
    }
}

/// With headers that keep the answer private.
fn private(answer: Answer) -> Answer {
    let headers = [
        ("Cache-Control", "no-store"),
        ("Content-Security-Policy", POLICY),
        ("Referrer-Policy", "no-referrer"),
        ("X-Content-Type-Options", "nosniff"),
    ];
    headers.into_iter().fold(answer, |answer, (name, value)| answer.with_header(name, value))
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpStream;

    use esker_base::thread;
    use serde_json::Value;

    use super::*;

    /// A sentence that changes.
    struct Told(Mutex<(u64, String)>);

    impl Told {
        fn say(&self, text: &str) {
            let mut told = self.0.lock();
            *told = (told.0 + 1, text.to_owned());
        }
    }

    impl Subject for Told {
        fn title(&self) -> String {
            "A run".to_owned()
        }

        fn now(&self, since: u64) -> Option<(u64, Page)> {
            let (version, text) = self.0.lock().clone();
            (version != since).then(|| (version, Page::new(self.title(), text)))
        }
    }

    fn live() -> Live<Told> {
        Live::start(0, Told(Mutex::new((1, "It begins.".to_owned())))).unwrap()
    }

    fn get(live: &Live<Told>, path: &str) -> (String, String) {
        let mut stream = TcpStream::connect(live.address).unwrap();
        write!(stream, "GET {path} HTTP/1.0\r\n\r\n").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.to_owned(), body.to_owned())
    }

    fn state(live: &Live<Told>, since: u64) -> Value {
        let path = format!("/{}/state?since={since}", live.shared.token.text());
        serde_json::from_str(&get(live, &path).1).unwrap()
    }

    #[test]
    fn nothing_is_answered_without_the_token() {
        let live = live();
        let token = live.shared.token.text();
        let (other, short) = (token.replace(|one| one != '0', "0"), &token[1..]);
        for path in
            ["/", "/state", "//state", &format!("/{other}/"), &format!("/{short}/"), "/favicon.ico"]
        {
            let (head, body) = get(&live, path);
            assert!(head.starts_with("HTTP/1.0 403"), "{path}: {head}");
            assert!(!body.contains("A run"), "{path}: {body}");
        }
        assert!(!live.is_open());
        let (head, body) = get(&live, &format!("/{token}/"));
        assert!(head.starts_with("HTTP/1.0 200") && head.contains("no-store"), "{head}");
        assert!(body.contains("<h1>A run</h1>") && body.contains("fetch("));
    }

    #[test]
    fn open_page_is_told_what_is_new_and_the_report_at_the_end() {
        let live = live();
        let first = state(&live, 0);
        assert!(first["header"].as_str().unwrap().contains("It begins."), "{first}");
        let version = first["version"].as_u64().unwrap();
        assert_eq!(state(&live, version), serde_json::json!({ "version": version }));
        live.subject().say("Maintenance goes on.");
        let next = state(&live, version);
        assert!(next["header"].as_str().unwrap().contains("Maintenance goes on."), "{next}");
        assert!(live.is_open());
        let asking = live.shared.clone();
        let page = thread::spawn("page", move || {
            loop {
                let told: Value = serde_json::from_str(&asking.state(0)).unwrap();
                if let Some(report) = told["report"].as_str() {
                    return report.to_owned();
                }
                Clock::real().sleep(Duration::from_millis(1));
            }
        });
        live.end("<!doctype html>".to_owned());
        assert_eq!(page.unwrap().join().unwrap(), "<!doctype html>");
    }

    #[test]
    fn end_waits_for_no_page_that_is_closed() {
        let (live, clock) = (live(), Clock::real());
        let began = clock.now();
        live.end(String::new());
        assert!(clock.now().since(began) < PATIENCE);
    }
}
