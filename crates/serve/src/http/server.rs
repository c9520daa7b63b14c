//! A server: one thread for all connections, and one for each request while it is answered.

use std::convert::Infallible;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::net::UnixListener;
use std::pin::pin;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use esker_base::{Clock, thread};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper::body::{Body as _, Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time;

use super::connections::{Connections, Open};
use super::message::{Answer, Head, Service};
use crate::error::{Result, ServeError};

/// Connections at a time.
pub(super) const CONNECTIONS: usize = 64;
/// How long a client may take for a request, and for its answer.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);
/// The largest head of a request.
const HEAD_MAX: usize = 16 << 10;
/// Headers of a request.
const HEADERS: usize = 64;
/// How long the end waits for answers.
const ENDING: Duration = Duration::from_millis(500);
/// The pause after the system had no connection to give: descriptors are short.
const PAUSE: Duration = Duration::from_millis(20);

/// Where a server listens.
pub(crate) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

/// Answers requests until it is dropped.
pub struct Server {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Answers at an address; port 0 is any that is free. `flag` is the option that named the address. Returns the
    /// address, too.
    ///
    /// # Errors
    /// `Conflict` when the address cannot be had.
    pub fn start_at(
        address: SocketAddr,
        flag: &'static str,
        service: impl Service,
    ) -> Result<(Server, SocketAddr)> {
        let refused = |cause| ServeError::Address { address, cause, flag };
        let listener = TcpListener::bind(address).map_err(refused)?;
        let bound = listener.local_addr().map_err(refused)?;
        let name = flag.trim_start_matches('-');
        let server = Server::start(Listener::Tcp(listener), name, service).map_err(refused)?;
        Ok((server, bound))
    }

    /// Answers those who connect. Its thread is called `name`.
    ///
    /// # Errors
    /// The system's, when it has no thread or descriptor to give.
    pub(crate) fn start(
        listener: Listener,
        name: &str,
        service: impl Service,
    ) -> std::io::Result<Server> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .thread_name(name)
            .max_blocking_threads(CONNECTIONS)
            .build()?;
        let entered = runtime.enter();
        let listener = match listener {
            Listener::Tcp(listener) => {
                listener.set_nonblocking(true)?;
                Accepting::Tcp(tokio::net::TcpListener::from_std(listener)?)
            }
            Listener::Unix(listener) => {
                listener.set_nonblocking(true)?;
                Accepting::Unix(tokio::net::UnixListener::from_std(listener)?)
            }
        };
        drop(entered);
        let (end, ended) = oneshot::channel();
        let work = move || serve(runtime, listener, Arc::new(service), ended);
        let thread = thread::spawn(name, work)?;
        Ok(Server { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Server {
    /// Ends in half a second at most; a request that takes longer goes on without a client.
    fn drop(&mut self) {
        self.end.take();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Takes a value from services whose servers have ended; none while a service is still at a request after [`ENDING`].
pub(crate) fn unshared<T>(mut shared: Arc<T>) -> Option<T> {
    let clock = Clock::real();
    let end = clock.now() + ENDING;
    loop {
        shared = match Arc::try_unwrap(shared) {
            Ok(alone) => return Some(alone),
            Err(_) if clock.now() > end => return None,
            Err(shared) => shared,
        };
        clock.sleep(PAUSE);
    }
}

enum Accepting {
    Tcp(tokio::net::TcpListener),
    Unix(tokio::net::UnixListener),
}

fn serve<S: Service>(
    runtime: Runtime,
    listener: Accepting,
    service: Arc<S>,
    ended: oneshot::Receiver<()>,
) {
    let graceful = Arc::new(GracefulShutdown::new());
    let accepting = runtime.spawn(accept(listener, graceful.clone(), service));
    runtime.block_on(async {
        let _ = ended.await; // its sender was dropped: that is the end
        accepting.abort();
        let _ = accepting.await; // aborted
        let graceful = Arc::into_inner(graceful).expect("the task that accepts had the other one");
        let _ = time::timeout(ENDING, graceful.shutdown()).await; // the others are cut off
    });
    // Answers that are still being made have no client any more.
    runtime.shutdown_background();
}

/// Takes connections. One that the system refuses is a matter of time: clients and files come and go.
async fn accept<S: Service>(listener: Accepting, graceful: Arc<GracefulShutdown>, service: Arc<S>) {
    let connections = Connections::default();
    loop {
        connections.make_room(CONNECTIONS).await;
        let (graceful, service) = (graceful.watcher(), service.clone());
        let accepted = match &listener {
            Accepting::Tcp(listener) => listener.accept().await.map(|(stream, _)| {
                let _ = stream.set_nodelay(true); // slower, at worst
                connections.open(|open| start(connection(stream, open, graceful, service)));
            }),
            Accepting::Unix(listener) => listener.accept().await.map(|(stream, _)| {
                connections.open(|open| start(connection(stream, open, graceful, service)));
            }),
        };
        match accepted {
            // A request that came with the connection is read before another connection can take its place.
            Ok(()) => tokio::task::yield_now().await,
            Err(_) => time::sleep(PAUSE).await,
        }
    }
}

fn start(task: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
    tokio::spawn(task).abort_handle()
}

async fn connection<S: Service>(
    stream: impl AsyncRead + AsyncWrite + Unpin + 'static,
    open: Open,
    graceful: Watcher,
    service: Arc<S>,
) {
    let open = Arc::new(open);
    let opened = open.clone();
    let answering = service_fn(move |request| {
        let (open, service) = (opened.clone(), service.clone());
        async move { Ok::<_, Infallible>(response(answer(request, &open, service).await)) }
    });
    let mut http = http1::Builder::new();
    http.max_headers(HEADERS).max_buf_size(HEAD_MAX).title_case_headers(true);
    let served = http.serve_connection(TokioIo::new(stream), answering);
    let mut served = pin!(graceful.watch(served));
    loop {
        let before = open.waiting();
        let is_over = time::timeout(PATIENCE, &mut served).await.is_ok();
        if is_over || before.is_some() && open.waiting() == before {
            return;
        }
    }
}

async fn answer<S: Service>(request: Request<Incoming>, open: &Open, service: Arc<S>) -> Answer {
    let (parts, body) = request.into_parts();
    let head = Head::new(parts);
    if let Err(refusal) = service.admit(&head) {
        return refusal;
    }
    let too_large = || {
        let most = S::BODY_MAX;
        service.error(413, &format!("the request's body has more than {most} bytes; send less"))
    };
    if body.size_hint().lower() > S::BODY_MAX as u64 {
        return too_large();
    }
    let body = match Limited::new(body, S::BODY_MAX).collect().await {
        Ok(body) => body.to_bytes(),
        Err(error) if error.is::<LengthLimitError>() => return too_large(),
        Err(error) => return service.error(400, &format!("the request's body: {error}")),
    };
    let _answering = open.answer();
    let working = service.clone();
    let answer = tokio::task::spawn_blocking(move || working.answer(&head, &body)).await;
    answer.unwrap_or_else(|failed| {
        let why = match failed.try_into_panic() {
            Ok(panic) => thread::said(&*panic),
            Err(failed) => failed.to_string(),
        };
        service.error(500, &format!("answering failed, which is a fault of Esker: {why}"))
    })
}

fn response(answer: Answer) -> Response<Full<Bytes>> {
    let mut response = Response::builder().status(answer.status);
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Full::from(answer.body)).expect("names, values and status are constants")
}
