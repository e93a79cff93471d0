//! The page on which one chooses what to run, runs it, sees it and compares it: `sunder lab serve`.
//!
//! A run is a process of its own, `sunder lab run FILE --out DIRECTORY --events`, one at a time,
//! because two would measure each other. Its directory has everything that is known of it; the list
//! of all runs is read from the directories when the server starts.
//!
//! # Guarantees
//!
//! The page listens on this host only. It answers a browser that was opened with its token, asks
//! for one of its own names and shows no other page. What comes from a request becomes a value of a
//! known kind or is refused: nothing of it is a path or an option of a program.
//!
//! # Map
//!
//! - [`serve()`]: the server. `guard`: who may ask. `api`: what one may ask. `assets`: the page.
//! - `template`, `request`, `chosen_file`, `refusal`, pure: what can be run, and an experiment file
//!   for what a person asks.
//! - `run`, `store`: a run on the disk, and all runs. `runner`: the queue and the process.
//!   `events`: what happens, as it happens. `document`: a run as the page gets it.
//! - `prediction`: what a run is expected to measure. `plan`, pure: plans of channels. `live`: what
//!   runs on this host.
//! - `web/`: the page, in TypeScript.

#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

mod api;
mod assets;
mod chosen_file;
mod document;
mod events;
mod guard;
mod live;
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

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use thiserror::Error;
use tokio::net::TcpListener;

use api::PanelState;
use guard::{PageGuard, PageToken};
use runner::RunQueue;
use store::RunStore;

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
    /// The address cannot be listened on.
    #[error("cannot listen on {0}: {1}")]
    Listening(SocketAddr, io::Error),
    /// The directory cannot be used.
    #[error("cannot use {path}: {error}", path = .0.display(), error = .1)]
    Directory(PathBuf, io::Error),
    /// The server ended.
    #[error("the server ended: {0}")]
    Serving(io::Error),
}

/// The maximum length of the body of a request, in bytes.
const MAX_BODY: usize = 16 << 20;

/// Serves the page until `end`. Calls `ready` with the page's address when it can be opened.
///
/// # Errors
/// If the server cannot start, or ends.
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
    let runs = directory.join("runs");
    let store = RunStore::open(&runs).map_err(unusable(&runs))?;
    let file = directory.join("token");
    let token = PageToken::open(&file).map_err(unusable(&file))?;
    let listener = TcpListener::bind(listen).await;
    let listener = listener.map_err(|error| PanelError::Listening(listen, error))?;
    let address = listener.local_addr().map_err(|error| PanelError::Listening(listen, error))?;

    let queue = RunQueue::new(program, store);
    let service = service(&queue, PageGuard::new(token.clone(), address));
    ready(&format!("http://{address}/?t={}", token.as_str()));
    tokio::select! {
        served = axum::serve(listener, service) => served.map_err(PanelError::Serving),
        () = queue.work() => Ok(()),
        () = end => Ok(()),
    }
}

/// Everything that is answered, behind the guard.
fn service(queue: &Arc<RunQueue>, guard: PageGuard) -> Router {
    api::routes()
        .merge(assets::routes())
        .fallback(async || api::refuse(StatusCode::NOT_FOUND, "there is no such page"))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
        .with_state(PanelState::new(Arc::clone(queue)))
}
