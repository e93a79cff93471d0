//! The page on which one chooses what to run, runs it, sees it and compares it: `sunder lab serve`.
//!
//! A run is a process of its own, `sunder lab run FILE --out DIRECTORY --events`, one at a time,
//! because two would measure each other. Its directory has everything that is known of it; the list
//! of all runs is read from the directories when the server starts.
//!
//! # Guarantees
//!
//! For one user, the page listens on this host only, and answers a browser that was opened with its
//! token. With accounts it answers browsers that are signed in, each of which sees the runs of its
//! account and no others. In both cases the browser asks for one of the page's own names and shows
//! no other page. A link to one run shows this run, and changes nothing. What comes from a request
//! becomes a value of a known kind or is refused: nothing of it is a path or an option of a
//! program. The interface is specified in `docs/formats/panel-api.json`.
//!
//! # Map
//!
//! - [`serve()`]: the server; `tls`: its certificate; `page_url`: its address. `guard`: who may
//!   ask; `token`, `cookie`: by which secret. `visitor`, pure: which runs they may see; `access`:
//!   the proof that they may. `body`: reads requests.
//! - `account_service`: the accounts. `account_api`: what one may ask about them. `quota`, pure:
//!   how much each may use; `run_meter`: how much a run may; `fair_queue`, pure: whose run runs
//!   next.
//! - `panel_state`: what all requests share. `api`: what one may ask. `error`: how it is refused.
//!   `assets`: the page.
//! - `template`, `request`, `chosen_file`, `refusal`, pure: what can be run, and an experiment file
//!   for what a person asks, with the archive that they upload.
//! - `run`, `store`: a run on the disk, and all runs. `runner`: the queue and the process.
//!   `events`: what happens, as it happens. `journal`: the results on the disk. `document`: a run
//!   as the page gets it. `lock`: one server uses a directory.
//! - `prediction`: what a run is expected to measure. `plan`, pure: plans of channels. `live`: what
//!   runs on this host.
//! - `web/`: the page, in TypeScript.

#![allow(clippy::cast_precision_loss, reason = "counts are far below 2^52")]

mod access;
mod account_api;
mod account_service;
mod api;
mod assets;
mod body;
mod chosen_file;
mod cookie;
mod document;
mod error;
mod events;
mod fair_queue;
mod guard;
mod journal;
mod live;
mod lock;
mod page_url;
mod panel_state;
mod plan;
mod prediction;
mod quota;
mod refusal;
mod request;
mod run;
mod run_meter;
mod runner;
mod store;
mod template;
#[cfg(test)]
mod tests;
mod tls;
mod token;
mod visitor;

use std::fs;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use accounts::{AccountStore, AccountStoreError, PasswordHasher};
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use keys::storage::{self, Durability};
use service::http::{HttpLimits, HttpServer};
use service::{listening, signals};
use thiserror::Error;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tower::ServiceExt as _;
use tracing::{info, warn};

use account_api::{RequestSource, forwarded_source};
use account_service::AccountService;
use cookie::PageCookie;
use error::ApiError;
use guard::PageGuard;
use lock::{DirectoryUse, ServerLock};
use panel_state::PanelState;
use runner::RunQueue;
use store::{QueueAtRestart, RunStore};
use tls::TlsServer;
use token::PageToken;

pub use page_url::{PageUrl, PageUrlError};
pub use quota::QuotaLimits;
pub use template::ScriptIsolation;
pub use tls::TlsFiles;

/// What the server needs.
#[derive(Clone, Debug)]
pub struct PanelOptions {
    /// The address to listen on.
    pub listen: SocketAddr,
    /// The directory for the runs, and for the token or the accounts. It is created if there is
    /// none.
    pub directory: PathBuf,
    /// The program `sunder`.
    pub program: PathBuf,
    /// What is needed for several users. Without it, the page is for one user of this host.
    pub accounts: Option<AccountOptions>,
    /// By what scripts that a person uploads are contained.
    pub isolation: ScriptIsolation,
}

/// What a server for several users needs.
#[derive(Clone, Debug)]
pub struct AccountOptions {
    /// By which address browsers reach it, unless it is the one on which it listens.
    pub url: Option<PageUrl>,
    /// How browsers reach it from other hosts.
    pub encryption: PageEncryption,
    /// The quotas.
    pub limits: QuotaLimits,
}

/// How what browsers send is encrypted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PageEncryption {
    /// Not at all: browsers are on this host.
    None,
    /// By this server.
    Tls(TlsFiles),
    /// By a proxy in front of this server, which alone can reach it. It appends the browser's
    /// address to `X-Forwarded-For`.
    Proxy,
}

/// Why the server could not start.
#[derive(Debug, Error)]
pub enum PanelError {
    /// Other hosts reach the address.
    #[error(
        "{0} is not an address of this host alone: listen on 127.0.0.1, and reach it by `ssh -L`"
    )]
    NotLocal(SocketAddr),
    /// Other hosts reach the address, and passwords would not be encrypted.
    #[error(
        "{0} is not an address of this host alone: give --tls-certificate and --tls-key, or \
         --behind-proxy if a proxy encrypts and no one else reaches this address"
    )]
    NotEncrypted(SocketAddr),
    /// The server cannot know its name.
    #[error("give --url https://NAME, the address that browsers use")]
    NoUrl,
    /// The certificate cannot be used.
    #[error("the certificate cannot be used: {0}")]
    Tls(io::Error),
    /// The accounts cannot be used.
    #[error(transparent)]
    Accounts(#[from] AccountStoreError),
    /// The directory is of a server of the other kind.
    #[error("{path} has {0}: name another directory", path = .1.display())]
    OtherKind(&'static str, PathBuf),
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

/// The file with the token of the only user.
const TOKEN: &str = "token";

/// The file with the address that browsers use, for `sunder lab user invite`.
const URL: &str = "url";

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
    let PanelOptions { listen, directory, program, accounts, isolation } = options;
    check(listen, &directory, accounts.as_ref())?;
    storage::create_private_directory(&directory).map_err(unusable(&directory))?;
    let mut lock = match ServerLock::take(&directory).map_err(unusable(&directory))? {
        DirectoryUse::Own(lock) => lock,
        DirectoryUse::Other(address) => return Err(running(&directory, address)),
    };
    let listener = TcpListener::bind(listen).await.map_err(|error| match error.kind() {
        ErrorKind::AddrInUse => PanelError::InUse(listen),
        _ => PanelError::Listening(listen, error),
    })?;
    listening::set_options(&listener);
    let address = listener.local_addr().map_err(|error| PanelError::Listening(listen, error))?;
    let server = match accounts {
        None => PanelServer::for_one_user(&directory, program, address, isolation)?,
        Some(accounts) => {
            PanelServer::with_accounts(&directory, program, address, accounts, isolation)?
        }
    };
    lock.note(address).map_err(unusable(&directory))?;
    ready(&server.page);
    let server = Arc::new(server);
    let http = HttpServer::new(LIMITS);
    let connected = |stream: TcpStream| Arc::clone(&server).connected(http.clone(), stream);
    tokio::select! {
        () = http.accept(listener, connected) => Ok(()),
        () = server.queue.work() => Ok(()),
        () = server.reload_at_hangups() => Ok(()),
        () = end => Ok(()),
    }
}

/// The address of the page of the server for several users that uses a directory, as it was when
/// the server started last; `None` if none has used it.
///
/// # Errors
/// If the file with the address cannot be read.
pub fn page_of(directory: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(directory.join(URL)) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        read => read.map(|url| Some(url.trim().to_owned())),
    }
}

/// Checks that nobody but the users can read what is sent, and the kind of the directory.
fn check(
    listen: SocketAddr,
    directory: &Path,
    accounts: Option<&AccountOptions>,
) -> Result<(), PanelError> {
    let has = |name: &str| directory.join(name).exists();
    let other = |what| Err(PanelError::OtherKind(what, directory.to_owned()));
    let is_local = listen.ip().is_loopback();
    match accounts {
        None if !is_local => Err(PanelError::NotLocal(listen)),
        None if has("accounts.sqlite") => other("accounts, for --accounts"),
        Some(_) if has(TOKEN) => other("runs of a server without accounts"),
        Some(accounts) => match accounts.encryption {
            PageEncryption::None if !is_local => Err(PanelError::NotEncrypted(listen)),
            PageEncryption::Tls(_) if !is_local && accounts.url.is_none() => Err(PanelError::NoUrl),
            PageEncryption::Proxy if accounts.url.is_none() => Err(PanelError::NoUrl),
            _ => Ok(()),
        },
        None => Ok(()),
    }
}

/// Another server uses the directory.
fn running(directory: &Path, address: Option<SocketAddr>) -> PanelError {
    let token = PageToken::read(&directory.join(TOKEN)).ok();
    let page = address.zip(token).map(|(at, token)| page(at, &token));
    PanelError::Running(page.or_else(|| page_of(directory).ok().flatten()))
}

fn unusable(path: &Path) -> impl FnOnce(io::Error) -> PanelError {
    let path = path.to_owned();
    |error| PanelError::Directory(path, error)
}

/// The end of an error's text: the address of the other server, if it is known.
fn at(address: Option<&str>) -> String {
    address.map_or_else(String::new, |address| format!(" at {address}"))
}

/// The address of the page, with the token.
fn page(address: SocketAddr, token: &PageToken) -> String {
    format!("http://{address}/?t={}", token.as_str())
}

/// A server that answers connections.
struct PanelServer {
    /// The address of the page, for its users.
    page: String,
    queue: Arc<RunQueue>,
    service: Router,
    tls: Option<TlsServer>,
    is_behind_proxy: bool,
}

impl PanelServer {
    fn for_one_user(
        directory: &Path,
        program: PathBuf,
        address: SocketAddr,
        isolation: ScriptIsolation,
    ) -> Result<Self, PanelError> {
        let file = directory.join(TOKEN);
        let token = PageToken::open(&file).map_err(unusable(&file))?;
        let runs = directory.join("runs");
        let store = RunStore::open(&runs, QueueAtRestart::Interrupted);
        let queue = RunQueue::new(program, store.map_err(unusable(&runs))?, None);
        let guard = PageGuard::new(token.clone(), address, Arc::clone(&queue));
        let cookie = PageCookie::of_port(address.port());
        let state = PanelState::new(Arc::clone(&queue), "http", cookie, isolation);
        let (page, service) = (page(address, &token), service(state, guard));
        Ok(Self { page, queue, service, tls: None, is_behind_proxy: false })
    }

    fn with_accounts(
        directory: &Path,
        program: PathBuf,
        address: SocketAddr,
        options: AccountOptions,
        isolation: ScriptIsolation,
    ) -> Result<Self, PanelError> {
        let is_behind_proxy = options.encryption == PageEncryption::Proxy;
        let tls = match options.encryption {
            PageEncryption::Tls(files) => Some(TlsServer::open(files).map_err(PanelError::Tls)?),
            PageEncryption::None | PageEncryption::Proxy => None,
        };
        let own = || PageUrl::of_listener(address, tls.is_some());
        let url = options.url.filter(|_| tls.is_some() || is_behind_proxy).unwrap_or_else(own);
        let (accounts, runs) = (AccountStore::open(directory)?, directory.join("runs"));
        let accounts =
            Arc::new(AccountService::new(accounts, PasswordHasher::default(), options.limits));
        let store = RunStore::open(&runs, QueueAtRestart::Kept).map_err(unusable(&runs))?;
        let file = directory.join(URL);
        storage::replace(&file, url.to_string().as_bytes(), 0o600, Durability::Cached)
            .map_err(unusable(&file))?;
        let queue = RunQueue::new(program, store, Some(Arc::clone(&accounts)));
        let service = service_with_accounts(&queue, accounts, &url, address, isolation);
        Ok(Self { page: url.to_string(), queue, service, tls, is_behind_proxy })
    }

    /// Answers the requests of one connection.
    async fn connected(self: Arc<Self>, http: HttpServer, stream: TcpStream) {
        let peer = stream.peer_addr().map(|peer| peer.ip()).ok();
        match &self.tls {
            None => self.answer(http, peer, stream).await,
            Some(tls) => {
                if let Some(stream) = tls.accept(stream).await {
                    self.answer(http, peer, stream).await;
                }
            }
        }
    }

    async fn answer(
        &self,
        http: HttpServer,
        peer: Option<IpAddr>,
        stream: impl AsyncRead + AsyncWrite + Unpin,
    ) {
        answer(http, self.service.clone(), peer, self.is_behind_proxy, stream).await;
    }

    /// Reads the certificate again at each SIGHUP, for ever.
    async fn reload_at_hangups(&self) {
        let (Some(tls), Ok(mut hangups)) = (&self.tls, signals::hangup_signals()) else {
            return std::future::pending().await;
        };
        while hangups.recv().await.is_some() {
            match tls.reload() {
                Ok(()) => info!("the certificate was read again"),
                Err(error) => warn!("the old certificate is kept: {error}"),
            }
        }
    }
}

/// The answers of a server with accounts.
fn service_with_accounts(
    queue: &Arc<RunQueue>,
    accounts: Arc<AccountService>,
    url: &PageUrl,
    address: SocketAddr,
    isolation: ScriptIsolation,
) -> Router {
    let of_port = || PageCookie::of_port(address.port());
    let cookie = if url.is_secure() { PageCookie::of_host() } else { of_port() };
    let guard = PageGuard::with_accounts(accounts, url, cookie.clone(), Arc::clone(queue));
    let state = PanelState::new(Arc::clone(queue), url.scheme(), cookie, isolation);
    service(state, guard)
}

/// Answers the requests of one connection of a peer.
async fn answer(
    http: HttpServer,
    service: Router,
    peer: Option<IpAddr>,
    is_behind_proxy: bool,
    stream: impl AsyncRead + AsyncWrite + Unpin,
) {
    let served = http.serve(stream, |mut request| {
        let service = service.clone();
        let forwarded = is_behind_proxy.then(|| forwarded_source(request.headers())).flatten();
        if let Some(source) = forwarded.or(peer) {
            request.extensions_mut().insert(RequestSource(source));
        }
        async move {
            let Ok(answer) = service.oneshot(request).await;
            answer
        }
    });
    // A browser that disconnects does not want the answer.
    let _ = served.await;
}

/// Everything that is answered, behind the guard.
fn service(state: PanelState, guard: PageGuard) -> Router {
    api::routes()
        .merge(assets::routes())
        .fallback(async || ApiError::new(StatusCode::NOT_FOUND, "there is no such page"))
        .method_not_allowed_fallback(async || {
            let why = "this address takes other methods: see /api/openapi.json";
            ApiError::new(StatusCode::METHOD_NOT_ALLOWED, why)
        })
        // What is read is bounded already.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(state.clone(), body::read))
        .layer(from_fn_with_state(Arc::new(guard), guard::check))
        .with_state(state)
}
