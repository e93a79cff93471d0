//! The page on which one chooses what to run, runs it, sees it and compares it: `sunder lab serve`.
//!
//! A run is a process of its own, `sunder lab run FILE --out DIRECTORY --events`, one at a time,
//! because two would measure each other. Its directory has everything that is known of it; the list
//! of all runs is read from the directories when the server starts.
//!
//! # Guarantees
//!
//! The page listens on this host only. It answers a browser that was opened with its token, asks
//! for one of its own names and shows no other page. A link to one run shows this run, and changes
//! nothing. What comes from a request becomes a value of a known kind or is refused: nothing of it
//! is a path or an option of a program. The interface is specified in
//! `docs/formats/panel-api.json`.
//!
//! # Map
//!
//! - [`serve()`]: the server. `guard`: who may ask; `token`: by which secret. `body`: reads
//!   requests. `api`: what one may ask. `error`: how it is refused. `assets`: the page.
//! - `template`, `request`, `chosen_file`, `refusal`, pure: what can be run, and an experiment file
//!   for what a person asks.
//! - `run`, `store`: a run on the disk, and all runs. `runner`: the queue and the process.
//!   `events`: what happens, as it happens. `journal`: the results on the disk. `document`: a run
//!   as the page gets it. `lock`: one server uses a directory.
//! - `prediction`: what a run is expected to measure. `plan`, pure: plans of channels. `live`: what
//!   runs on this host.
//! - `web/`: the page, in TypeScript.

#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

mod api;
mod assets;
mod body;
mod chosen_file;
mod document;
mod error;
mod events;
mod guard;
mod journal;
mod live;
mod lock;
mod plan;
mod prediction;
mod refusal;
mod request;
mod run;
mod runner;
mod store;
mod template;
#[cfg(test)]
mod tests;
mod token;

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use keys::storage;
use service::http::{HttpLimits, HttpServer};
use service::listening;
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;

use api::PanelState;
use error::ApiError;
use guard::PageGuard;
use lock::{DirectoryUse, ServerLock};
use runner::RunQueue;
use store::RunStore;
use token::PageToken;

/// What the server needs.
#[derive(Clone, Debug)]
pub struct PanelOptions {
    /// The address to listen on, of this host.
    pub listen: SocketAddr,
    /// The directory for the runs and the token. It is created if there is none.
    pub directory: PathBuf,
    /// The program `sunder`.
    pub program: PathBuf,
}

/// Why the server could not start.
#[derive(Debug, Error)]
pub enum PanelError {
    /// Other hosts reach the address.
    #[error(
        "{0} is not an address of this host alone: listen on 127.0.0.1, and reach it by `ssh -L`"
    )]
    NotLocal(SocketAddr),
    /// Another server uses the directory.
    #[error("it runs already{}: open that page, or name another --directory", at(.0.as_deref()))]
    Running(Option<String>),
    /// Another program listens on the address.
    #[error("another program listens on {0}: give another port with --listen; 0 is any free one")]
    InUse(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listening(SocketAddr, io::Error),
    /// The directory cannot be used.
    #[error("cannot use {path}: {error}", path = .0.display(), error = .1)]
    Directory(PathBuf, io::Error),
}

/// The connections: many more than pages may watch runs.
const LIMITS: HttpLimits = HttpLimits {
    connections: 512,
    header_timeout: Duration::from_secs(10),
    write_timeout: Duration::from_secs(30),
};

/// Serves the page until `end`. Calls `ready` with the page's address when it can be opened. Does
/// not wait for requests that are under way.
///
/// # Errors
/// If the server cannot start.
pub async fn serve(
    options: PanelOptions,
    ready: impl FnOnce(&str),
    end: impl Future<Output = ()> + Send + 'static,
) -> Result<(), PanelError> {
    let PanelOptions { listen, directory, program } = options;
    if !listen.ip().is_loopback() {
        return Err(PanelError::NotLocal(listen));
    }
    let unusable = |path: &Path| {
        let path = path.to_owned();
        |error| PanelError::Directory(path, error)
    };
    storage::create_private_directory(&directory).map_err(unusable(&directory))?;
    let file = directory.join("token");
    let mut lock = match ServerLock::take(&directory).map_err(unusable(&directory))? {
        DirectoryUse::Own(lock) => lock,
        DirectoryUse::Other(address) => {
            let token = PageToken::read(&file).ok();
            return Err(PanelError::Running(
                address.zip(token).map(|(at, token)| page(at, &token)),
            ));
        }
    };
    let token = PageToken::open(&file).map_err(unusable(&file))?;
    let listener = TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => PanelError::InUse(listen),
        _ => PanelError::Listening(listen, error),
    })?;
    listening::set_options(&listener);
    let address = listener.local_addr().map_err(|error| PanelError::Listening(listen, error))?;
    lock.note(address).map_err(unusable(&directory))?;
    let runs = directory.join("runs");
    let store = RunStore::open(&runs).map_err(unusable(&runs))?;

    let queue = RunQueue::new(program, store);
    let guard = PageGuard::new(token.clone(), address, Arc::clone(&queue));
    let service = service(&queue, guard);
    let http = HttpServer::new(LIMITS);
    let connected = |stream: TcpStream| answer(http.clone(), service.clone(), stream);
    ready(&page(address, &token));
    tokio::select! {
        () = http.accept(listener, connected) => Ok(()),
        () = queue.work() => Ok(()),
        () = end => Ok(()),
    }
}

/// The end of an error's text: the address of the other server, if it is known.
fn at(address: Option<&str>) -> String {
    address.map_or_else(String::new, |address| format!(" at {address}"))
}

/// Answers the requests of one connection.
async fn answer(http: HttpServer, service: Router, stream: impl AsyncRead + AsyncWrite + Unpin) {
    let served = http.serve(stream, |request| {
        let service = service.clone();
        async move {
            let Ok(answer) = service.oneshot(request).await;
            answer
        }
    });
    // A browser that disconnects does not want the answer.
    let _ = served.await;
}

/// The address of the page, with the token.
fn page(address: SocketAddr, token: &PageToken) -> String {
    format!("http://{address}/?t={}", token.as_str())
}

/// Everything that is answered, behind the guard.
fn service(queue: &Arc<RunQueue>, guard: PageGuard) -> Router {
    api::routes()
        .merge(assets::routes())
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "there is no such page"))
        .method_not_allowed_fallback(async || {
            let why = "this address takes other methods: see /api/openapi.json";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        // What is read is bounded already.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(body::long_bodies(), body::read))
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
        .with_state(PanelState::new(Arc::clone(queue)))
}
