//! Web server of the page: one thread, a bounded number of connections.
//!
//! Invariant: no client makes it keep more than the buffers of its connection; a reader of events that is slow misses some.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Extension, Path, Request, State};
use axum::http::header::{
    AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, HeaderName,
    ORIGIN, REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use serde::Serialize;
use sidereal::live::trigger::Origin;
use sidereal::{Error, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{Semaphore, oneshot};

use super::board::{Board, Message, Unlabelled, picture};
use super::guard::{Asked, Guard, Refusal};
use super::metrics;
use super::strain::map;
use crate::alerts::{Inlet, Taken};

/// Most connections at a time.
const CONNECTIONS: usize = 64;

/// Most readers of events among them, so that there is a place for a monitor.
const READERS: usize = 48;

/// Most bytes of a request's body, and of a connection's buffer, which holds the headers.
const BODY_BYTES: usize = 8 << 10;
const BUFFER_BYTES: usize = 32 << 10;

/// Longest time of a request's headers or pause between requests, of a request, and without an acknowledgement of what was sent.
const HEADER_TIME: Duration = Duration::from_secs(15);
const REQUEST_TIME: Duration = Duration::from_secs(10);
const UNACKNOWLEDGED_MS: u32 = 30_000;

/// Time after which a client asks again for events when the connection is lost.
const RETRY: Duration = Duration::from_secs(1);

const INDEX: &str = include_str!("../../assets/page/index.html");
const STRAIN_INDEX: &str = include_str!("../../assets/page/strain.html");
const STYLE: &str = include_str!("../../assets/page/page.css");
const ICON: &str = include_str!("../../assets/page/icon.svg");
const PLOTS: &str = include_str!("../../assets/page/plots.js");
const COMMON_SCRIPT: &str = include_str!("../../assets/page/common.js");
const SCRIPT: &str = include_str!("../../assets/page/page.js");
const STRAIN_SCRIPT: &str = include_str!("../../assets/page/strain.js");

/// Verb that searches strain, which has a page of its own.
const STRAIN_VERB: &str = "live spiir";

/// Sources of what a page may load: this server only.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// State of all requests.
pub(super) struct Shared {
    pub(super) board: Arc<Board>,
    pub(super) guard: Guard,
    /// Queue for triggers, in a run that accepts them.
    triggers: Option<Mutex<Inlet>>,
    readers: Arc<Semaphore>,
}

impl Shared {
    pub(super) fn new(board: Arc<Board>, guard: Guard, triggers: Option<Inlet>) -> Self {
        let (triggers, readers) = (triggers.map(Mutex::new), Arc::new(Semaphore::new(READERS)));
        Self { board, guard, triggers, readers }
    }
}

/// Address of this machine to which a connection leads.
#[derive(Clone, Copy)]
struct Local(IpAddr);

/// Server, which ends when it is dropped.
pub(super) struct Server {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Server {
    /// Serves the connections of a listener on a thread of its own.
    ///
    /// # Errors
    /// [`Error::Io`] if the system starts no thread, or has no events of sockets.
    pub(super) fn start(listener: std::net::TcpListener, shared: Shared) -> Result<Self> {
        let failed = |error| Error::io("thread of the page", error);
        listener.set_nonblocking(true).map_err(failed)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .enable_time()
            .max_blocking_threads(4)
            .build()
            .map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let serving = move || {
            runtime.block_on(async {
                tokio::select! {
                    () = serve(listener, Arc::new(shared)) => {}
                    _ = stopped => {}
                }
            });
            // Connections are closed; a picture that a slow disk holds back is not waited for.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("page".into()).spawn(serving).map_err(failed)?;
        Ok(Self { stop: Some(stop), thread: Some(thread) })
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // A server that has failed hears nothing.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take()
            && let Err(panic) = thread.join()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

/// Accepts connections.
async fn serve(listener: std::net::TcpListener, shared: Arc<Shared>) {
    let Ok(listener) = TcpListener::from_std(listener) else { return };
    let router = router(shared);
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(_) => {
                // Too many open files, which may pass.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let router = router.clone();
        tokio::spawn(async move {
            connection(stream, router).await;
            drop(place);
        });
    }
}

/// Answers the requests of a connection.
async fn connection(stream: TcpStream, router: Router) {
    let Ok(local) = stream.local_addr().as_ref().map(SocketAddr::ip) else { return };
    let _ = stream.set_nodelay(true);
    let _ = rustix::net::sockopt::set_tcp_user_timeout(&stream, UNACKNOWLEDGED_MS);
    let service = TowerToHyperService::new(router.layer(Extension(Local(local))));
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME)
        .max_buf_size(BUFFER_BYTES)
        .serve_connection(TokioIo::new(stream), service);
    // A client that hangs up or sends nonsense is its own affair.
    let _ = served.await;
}

fn router(shared: Arc<Shared>) -> Router {
    let text = |kind: &'static str, text: &'static str| {
        get(move || async move { ([(CONTENT_TYPE, kind)], text) })
    };
    let index = if shared.board.about.verb == STRAIN_VERB { STRAIN_INDEX } else { INDEX };
    Router::new()
        .route("/", text("text/html; charset=utf-8", index))
        .route("/assets/page.css", text("text/css; charset=utf-8", STYLE))
        .route("/assets/icon.svg", text("image/svg+xml", ICON))
        .route("/assets/plots.js", text("text/javascript; charset=utf-8", PLOTS))
        .route("/assets/common.js", text("text/javascript; charset=utf-8", COMMON_SCRIPT))
        .route("/assets/page.js", text("text/javascript; charset=utf-8", SCRIPT))
        .route("/assets/strain.js", text("text/javascript; charset=utf-8", STRAIN_SCRIPT))
        .route("/events", get(events))
        .route("/status", get(status))
        .route("/healthz", get(healthz))
        .route("/metrics", get(metrics))
        .route("/candidates", get(candidates))
        .route("/dumps", get(dumps))
        .route("/plane", get(plane))
        .route("/map/{number}/{detector}", get(show_map))
        .route("/pictures/{day}/{name}", get(show_picture))
        .route("/session", get(session))
        .route("/login", post(login))
        .route("/label", post(label))
        .route("/trigger", post(take_trigger))
        .fallback(|| async { (StatusCode::NOT_FOUND, "There is no such page.\n") })
        .layer(DefaultBodyLimit::max(BODY_BYTES))
        .layer(from_fn_with_state(Arc::clone(&shared), admit))
        .with_state(shared)
}

/// Returns the only value of a header.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    let mut values = headers.get_all(name).iter();
    let value = values.next()?.to_str().ok()?;
    values.next().is_none().then_some(value)
}

/// Describes a request for the guard.
fn asked<'a>(request: &'a Request, local: Option<IpAddr>) -> Asked<'a> {
    let headers = request.headers();
    Asked {
        is_post: !matches!(*request.method(), Method::GET | Method::HEAD),
        path: request.uri().path(),
        host: only(headers, HOST),
        // Several origins, or one that is no text, are that of no page.
        origin: headers.contains_key(ORIGIN).then(|| only(headers, ORIGIN).unwrap_or("null")),
        cookies: only(headers, COOKIE),
        authorization: only(headers, AUTHORIZATION),
        local,
    }
}

/// Refuses requests that the guard does not admit or that take too long, and adds the headers of all answers.
async fn admit(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let local = request.extensions().get::<Local>().map(|local| local.0);
    let admitted = shared.guard.check(&asked(&request, local));
    let mut response = match admitted {
        Ok(()) => match tokio::time::timeout(REQUEST_TIME, next.run(request)).await {
            Ok(response) => response,
            Err(_) => (StatusCode::REQUEST_TIMEOUT, "The request took too long.\n").into_response(),
        },
        Err(refusal) => refused(refusal),
    };
    let headers = response.headers_mut();
    let fixed = |text| HeaderValue::from_static(text);
    headers.insert(CONTENT_SECURITY_POLICY, fixed(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, fixed("nosniff"));
    headers.insert(REFERRER_POLICY, fixed("no-referrer"));
    headers.entry(CACHE_CONTROL).or_insert(fixed("no-store"));
    response
}

fn refused(refusal: Refusal) -> Response {
    let (code, why) = match refusal {
        Refusal::Host => (
            StatusCode::MISDIRECTED_REQUEST,
            "This name of the machine is unknown here; --page-host gives further ones.\n",
        ),
        Refusal::Origin => {
            (StatusCode::FORBIDDEN, "The request comes from a page of another origin.\n")
        }
        Refusal::Token => (
            StatusCode::UNAUTHORIZED,
            "This needs the token, in a cookie (POST /login) or the header `Authorization: Bearer`.\n",
        ),
    };
    (code, why).into_response()
}

/// Makes a document with its provenance.
fn document<T: Serialize>(shared: &Shared, name: &str, document: T) -> Response {
    Json(shared.board.about.made.product(name, document)).into_response()
}

async fn status(State(shared): State<Arc<Shared>>) -> Response {
    document(&shared, "live-status", shared.board.status().as_ref().clone())
}

async fn candidates(State(shared): State<Arc<Shared>>) -> Response {
    document(&shared, "live-candidates", shared.board.candidates())
}

async fn dumps(State(shared): State<Arc<Shared>>) -> Response {
    Json(shared.board.dumps()).into_response()
}

async fn plane(State(shared): State<Arc<Shared>>) -> Response {
    Json(shared.board.plane().as_deref()).into_response()
}

async fn healthz(State(shared): State<Arc<Shared>>) -> Response {
    let health = &shared.board.status().health;
    if health.ok {
        return "ok\n".into_response();
    }
    let mut text = String::new();
    health.reasons.iter().for_each(|reason| {
        let _ = writeln!(text, "{reason}");
    });
    (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
}

async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    ([(CONTENT_TYPE, kind)], metrics::text(&shared.board.status())).into_response()
}

/// Events: first a picture of the whole run, then changes.
async fn events(State(shared): State<Arc<Shared>>) -> Response {
    let Ok(place) = Arc::clone(&shared.readers).try_acquire_owned() else {
        return (StatusCode::SERVICE_UNAVAILABLE, "Too many pages are open.\n").into_response();
    };
    let (hello, receiver) = shared.board.listen();
    let first = event(&Message { event: "status", data: status_line(&shared) });
    let begin = [Event::default().retry(RETRY).comment("sidereal"), event(&hello), first];
    let state = (begin.into_iter(), receiver, place);
    let stream =
        futures_util::stream::unfold(state, |(mut begin, mut receiver, place)| async move {
            if let Some(event) = begin.next() {
                return Some((Ok::<_, Infallible>(event), (begin, receiver, place)));
            }
            let event = match receiver.recv().await {
                Ok(message) => event(&message),
                Err(RecvError::Lagged(missed)) => {
                    Event::default().event("missed").data(missed.to_string())
                }
                Err(RecvError::Closed) => return None,
            };
            Some((Ok(event), (begin, receiver, place)))
        });
    Sse::new(stream).keep_alive(KeepAlive::default()).into_response()
}

fn status_line(shared: &Shared) -> Arc<str> {
    crate::json::line(shared.board.status().as_ref()).unwrap_or_default().into()
}

fn event(message: &Message) -> Event {
    Event::default().event(message.event).data(&message.data)
}

async fn show_picture(
    State(shared): State<Arc<Shared>>,
    Path((day, name)): Path<(String, String)>,
) -> Response {
    let pictures = shared.board.pictures();
    let read = move || picture(&pictures, &day, &name).and_then(|path| std::fs::read(path).ok());
    match tokio::task::spawn_blocking(read).await {
        Ok(Some(bytes)) => ([(CONTENT_TYPE, "image/png")], Body::from(bytes)).into_response(),
        _ => (StatusCode::NOT_FOUND, "There is no such picture.\n").into_response(),
    }
}

/// Computes the map of an event, which the thread of the page does not wait for.
async fn show_map(
    State(shared): State<Arc<Shared>>,
    Path((number, detector)): Path<(u64, String)>,
) -> Response {
    let made = move || map(shared.board.strain.around(number)?.as_ref(), &detector);
    match tokio::task::spawn_blocking(made).await {
        Ok(Some(map)) => Json(map).into_response(),
        _ => (StatusCode::NOT_FOUND, "There is no such map.\n").into_response(),
    }
}

/// Rights of a client.
#[derive(Serialize)]
struct Session {
    /// Whether it has the token.
    token: bool,
}

async fn session(State(shared): State<Arc<Shared>>, request: Request) -> Response {
    Json(Session { token: shared.guard.has_token(&asked(&request, None)) }).into_response()
}

/// Sets the cookie for a body that is the token.
async fn login(State(shared): State<Arc<Shared>>, body: String) -> Response {
    let token = &shared.guard.token;
    if !token.is(body.trim()) {
        return (StatusCode::UNAUTHORIZED, "This is not the token.\n").into_response();
    }
    let cookie = format!(
        "{}={}; Path=/; Max-Age=31536000; HttpOnly; SameSite=Strict",
        shared.guard.cookie(),
        token.text()
    );
    (StatusCode::NO_CONTENT, [(SET_COOKIE, cookie)]).into_response()
}

/// Puts a trigger in the queue of the search, in any of the forms that come as datagrams.
async fn take_trigger(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let Some(triggers) = &shared.triggers else {
        return (StatusCode::NOT_FOUND, "Only `live search` takes triggers.\n").into_response();
    };
    // All requests share a rate, since those through a proxy have its address.
    let sender = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let taken = {
        let mut triggers = triggers.lock().unwrap_or_else(PoisonError::into_inner);
        triggers.take(&body, Origin::Http, sender)
    };
    let too_many = StatusCode::TOO_MANY_REQUESTS;
    let unavailable = StatusCode::SERVICE_UNAVAILABLE;
    match taken {
        Taken::Queued => StatusCode::ACCEPTED.into_response(),
        Taken::Malformed(why) => (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response(),
        Taken::Limited => {
            (too_many, "These are more triggers than --trigger-rate.\n").into_response()
        }
        Taken::Full => (unavailable, "Too many triggers wait for the search.\n").into_response(),
        Taken::Over => (unavailable, "The search has ended.\n").into_response(),
    }
}

async fn label(State(shared): State<Arc<Shared>>, body: Bytes) -> Response {
    let given = match serde_json::from_slice(&body) {
        Ok(given) => given,
        Err(error) => return (StatusCode::BAD_REQUEST, format!("{error}\n")).into_response(),
    };
    let board = Arc::clone(&shared.board);
    let labelled = tokio::task::spawn_blocking(move || board.label(given)).await;
    match labelled {
        Ok(Ok(())) => StatusCode::NO_CONTENT.into_response(),
        Ok(Err(Unlabelled::Refused(why))) => {
            (StatusCode::BAD_REQUEST, format!("{why}\n")).into_response()
        }
        Ok(Err(Unlabelled::Unknown)) => {
            let why = "There is no candidate of this observation and number among the last 1000.\n";
            (StatusCode::NOT_FOUND, why).into_response()
        }
        Ok(Err(Unlabelled::Failed(error))) => {
            (StatusCode::INSUFFICIENT_STORAGE, format!("{error}\n")).into_response()
        }
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")).into_response(),
    }
}
