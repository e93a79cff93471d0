//! Who may ask: a browser that was opened with the token or is signed in to an account, and for a
//! single run one that was opened with a link to it. Other pages that the same browser shows, and
//! names of other hosts that lead here, are refused.

use std::net::SocketAddr;
use std::sync::Arc;

use accounts::AccountSecret;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, COOKIE, HOST, LOCATION, ORIGIN,
    REFERRER_POLICY, SET_COOKIE, STRICT_TRANSPORT_SECURITY, X_CONTENT_TYPE_OPTIONS,
    X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::BodyExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::account_service::AccountService;
use crate::cookie::{PageCookie, YEAR_S};
use crate::error::{ApiError, ApiResult};
use crate::page_url::PageUrl;
use crate::run::RunName;
use crate::runner::RunQueue;
use crate::token::{self, PageToken};
use crate::visitor::{LinkedRun, PageVisitor, SignedInAccount};

/// What is to be done with a request.
enum PageAdmission {
    /// It is an address with a token. The answer is a cookie, and the address without the token.
    Entry { cookie: String, location: String },
    /// It asks for the page itself, which is no secret: it says how to open it.
    Page,
    /// It asks for something that this visitor may have.
    Visit(PageVisitor),
}

/// By what a browser is recognised.
#[derive(Clone)]
enum PageEntrance {
    /// The token in the address that was printed.
    Token(PageToken),
    /// A session of an account.
    Accounts(Arc<AccountService>),
}

/// What requests are checked against.
#[derive(Clone)]
pub(crate) struct PageGuard {
    entrance: PageEntrance,
    scheme: &'static str,
    /// The names under which browsers reach the page.
    hosts: Vec<String>,
    /// The cookie. That of a link has the name of the run in addition.
    cookie: PageCookie,
    queue: Arc<RunQueue>,
    /// Places of requests of people with a link.
    link_requests: Arc<Semaphore>,
}

/// How many requests of people with a link are answered at a time.
const MAX_LINK_REQUESTS: usize = 32;

/// The type of an answer that goes on.
const EVENT_STREAM: &str = "text/event-stream";

/// A header that the page sends with what changes something. Another page cannot send it: a browser
/// asks the server first whether it may.
const CHANGE_HEADER: HeaderName = HeaderName::from_static("x-sunder");

/// What one may ask for without a session, in order to get one.
const FOR_STRANGERS: [&str; 2] = ["/api/session", "/api/invitation"];

impl PageGuard {
    /// A guard for the only user, who has the token.
    pub(crate) fn new(token: PageToken, address: SocketAddr, queue: Arc<RunQueue>) -> Self {
        let port = address.port();
        let hosts = vec![address.to_string(), format!("localhost:{port}")];
        let (entrance, cookie) = (PageEntrance::Token(token), PageCookie::of_port(port));
        Self::of(entrance, "http", hosts, cookie, queue)
    }

    /// A guard for people with accounts.
    pub(crate) fn with_accounts(
        accounts: Arc<AccountService>,
        url: &PageUrl,
        cookie: PageCookie,
        queue: Arc<RunQueue>,
    ) -> Self {
        let (entrance, hosts) = (PageEntrance::Accounts(accounts), vec![url.host().to_owned()]);
        Self::of(entrance, url.scheme(), hosts, cookie, queue)
    }

    fn of(
        entrance: PageEntrance,
        scheme: &'static str,
        hosts: Vec<String>,
        cookie: PageCookie,
        queue: Arc<RunQueue>,
    ) -> Self {
        let link_requests = Arc::new(Semaphore::new(MAX_LINK_REQUESTS));
        Self { entrance, scheme, hosts, cookie, queue, link_requests }
    }

    fn admit(&self, request: &Request) -> ApiResult<PageAdmission> {
        let (headers, path) = (request.headers(), request.uri().path());
        if !self.is_to_page(headers) {
            let why = "this is not the page's address";
            return Err(ApiError::new(StatusCode::MISDIRECTED_REQUEST, why));
        }
        if path == "/" {
            let query = request.uri().query().unwrap_or_default();
            let value = |name: &'static str| query.split('&').find_map(|it| it.strip_prefix(name));
            if let (Some(token), PageEntrance::Token(own)) = (value("t="), &self.entrance) {
                return self.entry(own, token);
            }
            if let (Some(run), Some(token)) = (value("run="), value("r=")) {
                return self.entry_of_link(run, token);
            }
        }
        if !path.starts_with("/api/") {
            return Ok(PageAdmission::Page);
        }
        if !self.is_from_page(request.method(), headers) {
            let why = "another page asks; only the page itself may";
            return Err(ApiError::new(StatusCode::FORBIDDEN, why));
        }
        self.visitor(request.method(), path, headers).map(PageAdmission::Visit)
    }

    /// Whether the request came to one of the page's names.
    fn is_to_page(&self, headers: &HeaderMap) -> bool {
        let host = text(headers, &HOST).unwrap_or_default();
        self.hosts.iter().any(|name| name.eq_ignore_ascii_case(host))
    }

    /// The answer to the address with the token of the page.
    fn entry(&self, own: &PageToken, token: &str) -> ApiResult<PageAdmission> {
        if !own.is(token) {
            return Err(self.unknown());
        }
        let cookie = self.cookie.of(own.as_str(), YEAR_S);
        Ok(PageAdmission::Entry { cookie, location: "/".to_owned() })
    }

    /// The answer to a link to one run.
    fn entry_of_link(&self, run: &str, token: &str) -> ApiResult<PageAdmission> {
        self.linked(run, token).ok_or_else(|| {
            ApiError::new(StatusCode::UNAUTHORIZED, "this link is not valid any more")
        })?;
        let cookie = self.cookie.of_link(run).of(token, YEAR_S);
        Ok(PageAdmission::Entry { cookie, location: format!("/?run={run}") })
    }

    /// The run of a link that is valid.
    fn linked(&self, run: &str, token: &str) -> Option<LinkedRun> {
        let name = RunName::try_from(run.to_owned()).ok()?;
        let link = self.queue.store().get(&name)?.link.clone()?;
        (token::digest(token) == link).then_some(LinkedRun { name, link })
    }

    /// Whether the request comes from the page itself, or from no page.
    fn is_from_page(&self, method: &Method, headers: &HeaderMap) -> bool {
        let site = text(headers, &HeaderName::from_static("sec-fetch-site"));
        let is_same_site = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
        let origin = headers.get(ORIGIN).map(|it| it.to_str().unwrap_or_default());
        let is_own = |origin: &str| {
            let host = origin.strip_prefix(self.scheme).and_then(|it| it.strip_prefix("://"));
            self.hosts.iter().any(|own| host == Some(own))
        };
        let is_marked = matches!(self.entrance, PageEntrance::Token(_))
            || matches!(*method, Method::GET | Method::HEAD)
            || headers.contains_key(CHANGE_HEADER);
        is_same_site && origin.is_none_or(is_own) && is_marked
    }

    /// Who asks for this path, if they may.
    fn visitor(&self, method: &Method, path: &str, headers: &HeaderMap) -> ApiResult<PageVisitor> {
        let lines = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok());
        let cookies = lines.flat_map(|line| line.split(';'));
        let cookies = cookies.filter_map(|it| it.trim().split_once('='));
        // Cookies of other pages are none of ours.
        let cookies: Vec<(&str, &str)> = cookies
            .filter_map(|(name, value)| Some((name.strip_prefix(self.cookie.name())?, value)))
            .collect();
        let own = cookies.iter().filter(|(rest, _)| rest.is_empty());
        let known = own.take(MAX_COOKIES).find_map(|(_, value)| self.known(value));
        let links = cookies.iter();
        let links = links.filter_map(|(rest, value)| self.linked(rest.strip_prefix('-')?, value));
        let links: Vec<LinkedRun> = links.collect();
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let linked = links.iter().find(|linked| is_read && is_readable(&linked.name, path));
        if let Some(known) = known {
            // A person with an account may have a link to a run of somebody else.
            let of_other = linked.filter(|linked| {
                path != TEMPLATES
                    && !self.queue.store().get(&linked.name).is_some_and(|it| known.may_see(it))
            });
            return Ok(of_other.map_or(known, |linked| PageVisitor::LinkHolder(linked.clone())));
        }
        if let Some(linked) = linked {
            return Ok(PageVisitor::LinkHolder(linked.clone()));
        }
        if matches!(self.entrance, PageEntrance::Accounts(_)) && FOR_STRANGERS.contains(&path) {
            return Ok(PageVisitor::Stranger);
        }
        if links.is_empty() {
            return Err(self.unknown());
        }
        Err(ApiError::new(StatusCode::FORBIDDEN, "the link is for reading one run"))
    }

    /// A place for a request, if this visitor needs one.
    fn request_place(&self, visitor: &PageVisitor) -> ApiResult<Option<OwnedSemaphorePermit>> {
        if let PageVisitor::LinkHolder(_) = visitor {
            let place = Arc::clone(&self.link_requests).try_acquire_owned();
            return place.map(Some).map_err(|_| {
                let why = "too many others read shared runs: repeat it in a moment";
                ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)
            });
        }
        let accounts = self.queue.accounts().zip(visitor.account());
        accounts.map(|(accounts, id)| accounts.request_place(id)).transpose()
    }

    /// The visitor with this value of the cookie.
    fn known(&self, value: &str) -> Option<PageVisitor> {
        match &self.entrance {
            PageEntrance::Token(token) => token.is(value).then_some(PageVisitor::Owner),
            PageEntrance::Accounts(accounts) => {
                let account = accounts.account_of(value)?;
                Some(PageVisitor::Account(SignedInAccount {
                    account,
                    session: AccountSecret::presented(value),
                }))
            }
        }
    }

    /// The refusal of a browser that is not recognised.
    fn unknown(&self) -> ApiError {
        let why = match self.entrance {
            PageEntrance::Token(_) => "open the address that `sunder lab serve` has printed",
            PageEntrance::Accounts(_) => "sign in first",
        };
        ApiError::new(StatusCode::UNAUTHORIZED, why)
    }
}

/// How many cookies of the same name are tried.
const MAX_COOKIES: usize = 4;

/// What is the same for all.
const TEMPLATES: &str = "/api/templates";

/// Whether a person with a link to a run may read this path: the run, and what is the same for all.
fn is_readable(run: &RunName, path: &str) -> bool {
    let of_run = path.strip_prefix("/api/runs/").and_then(|path| path.strip_prefix(run.as_str()));
    of_run.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) || path == TEMPLATES
}

/// Checks a request, and sets the headers of the answer.
pub(crate) async fn check(
    State(guard): State<Arc<PageGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = guarded(&guard, request, next).await.unwrap_or_else(ApiError::into_response);
    let headers = response.headers_mut();
    let mut set = |name, value| drop(headers.insert(name, HeaderValue::from_static(value)));
    set(CONTENT_SECURITY_POLICY, "default-src 'self'; frame-ancestors 'none'; base-uri 'none'");
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(X_FRAME_OPTIONS, "DENY");
    set(REFERRER_POLICY, "no-referrer");
    set(CACHE_CONTROL, "no-store");
    if guard.scheme == "https" {
        set(STRICT_TRANSPORT_SECURITY, "max-age=31536000");
    }
    response
}

async fn guarded(guard: &PageGuard, mut request: Request, next: Next) -> ApiResult<Response> {
    match guard.admit(&request)? {
        PageAdmission::Entry { cookie, location } => {
            let headers = [(SET_COOKIE, cookie), (LOCATION, location)];
            Ok((StatusCode::SEE_OTHER, headers).into_response())
        }
        PageAdmission::Page => Ok(next.run(request).await),
        PageAdmission::Visit(visitor) => {
            let place = guard.request_place(&visitor)?;
            request.extensions_mut().insert(visitor);
            let response = next.run(request).await;
            // A run is watched for long: those who watch have places of their own.
            let is_watching =
                text(response.headers(), &CONTENT_TYPE).is_some_and(|it| it == EVENT_STREAM);
            Ok(match place {
                Some(place) if !is_watching => kept_until_sent(place, response),
                _ => response,
            })
        }
    }
}

/// An answer that keeps a place until it is sent, or its connection has ended.
fn kept_until_sent(place: OwnedSemaphorePermit, response: Response) -> Response {
    response.map(|body| {
        Body::new(body.map_frame(move |frame| {
            let _kept = &place;
            frame
        }))
    })
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
