//! Requests and answers.

use hyper::http::request::Parts;

/// The head of a request.
pub struct Head(Parts);

impl Head {
    pub(super) fn new(parts: Parts) -> Head {
        Head(parts)
    }

    /// The method, such as `GET`.
    pub(crate) fn method(&self) -> &str {
        self.0.method.as_str()
    }

    /// The path and the query, as the client wrote them.
    pub(crate) fn url(&self) -> &str {
        self.0.uri.path_and_query().map_or("", |url| url.as_str())
    }

    /// The value of a header; a list with commas where the client wrote it several times. Bytes that are no UTF-8 are
    /// replaced: a value is never taken for none.
    pub(crate) fn header(&self, name: &str) -> Option<String> {
        let values = self.0.headers.get_all(name).iter();
        let texts = values.map(|value| String::from_utf8_lossy(value.as_bytes()).trim().to_owned());
        texts.reduce(|list, next| format!("{list}, {next}"))
    }
}

/// The answer to a request.
#[derive(Debug)]
pub struct Answer {
    pub(super) status: u16,
    pub(super) headers: Vec<(&'static str, &'static str)>,
    pub(super) body: String,
}

impl Answer {
    /// An answer with a status and the value of `Content-Type`.
    pub(crate) fn new(status: u16, content_type: &'static str, body: impl Into<String>) -> Answer {
        Answer { status, headers: vec![("Content-Type", content_type)], body: body.into() }
    }

    /// With one more header.
    #[must_use]
    pub fn with_header(mut self, name: &'static str, value: &'static str) -> Answer {
        self.headers.push((name, value));
        self
    }
}

/// A text of some type: the value of `Content-Type`.
#[must_use]
pub fn text(content_type: &'static str, text: impl Into<String>) -> Answer {
    Answer::new(200, content_type, text)
}

/// An error, with a line that says why.
#[must_use]
pub fn error(status: u16, why: &str) -> Answer {
    Answer::new(status, "text/plain; charset=utf-8", format!("{why}\n"))
}

/// Answers requests, several at a time.
pub trait Service: Send + Sync + 'static {
    /// The largest body of a request, in bytes.
    const BODY_MAX: usize;

    /// Decides by the head alone, before the body is read.
    ///
    /// # Errors
    /// The answer to a request that is refused.
    fn admit(&self, head: &Head) -> Result<(), Answer>;

    /// Answers a request. It may block: each request has a thread.
    fn answer(&self, head: &Head, body: &[u8]) -> Answer;

    /// The answer where no request could be had from the client, or answering it failed.
    fn error(&self, status: u16, why: &str) -> Answer {
        error(status, why)
    }
}

/// Pages to read: given the path and the query.
impl<F: Fn(&str) -> Answer + Send + Sync + 'static> Service for F {
    const BODY_MAX: usize = 0;

    fn admit(&self, head: &Head) -> Result<(), Answer> {
        match head.method() {
            "GET" | "HEAD" => Ok(()),
            other => Err(error(405, &format!("there are pages to GET, nothing to {other}"))),
        }
    }

    fn answer(&self, head: &Head, _: &[u8]) -> Answer {
        self(head.url())
    }
}
