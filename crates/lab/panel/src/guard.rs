//! Who may ask: a browser of this host that was opened with the token, and for a single run one
//! that was opened with a link to it. Other pages that the same browser shows, and names of other
//! hosts that lead here, are refused.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::error::{ApiError, ApiResult};
use crate::run::RunName;
use crate::runner::RunQueue;
use crate::token::{self, PageToken};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PageVisitor {
    /// A person with the address of the page.
    Owner,
    /// A person with a link to one run, who may read this run.
    Guest(LinkedRun),
}

/// A run, and the digest of a link to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedRun {
    pub(crate) name: RunName,
    pub(crate) link: String,
}

/// What is to be done with a request.
enum PageAdmission {
    /// It is an address with a token. The answer is a cookie, and the address without the token.
    Entry { cookie: String, location: String },
    /// It asks for the page itself, which is no secret: it says how to open it.
    Page,
    /// It asks for something that this visitor may have.
    Visit(PageVisitor),
}

/// What requests are checked against.
#[derive(Clone)]
pub(crate) struct PageGuard {
    token: PageToken,
    /// The names under which browsers of this host reach the page.
    hosts: [String; 2],
    /// The name of the cookie: pages on other ports of this host share cookies. The cookie of a
    /// link has the name of the run in addition.
    cookie: String,
    queue: Arc<RunQueue>,
}

impl PageGuard {
    pub(crate) fn new(token: PageToken, address: SocketAddr, queue: Arc<RunQueue>) -> Self {
        let port = address.port();
        let hosts = [address.to_string(), format!("localhost:{port}")];
        Self { token, hosts, cookie: format!("sunder-{port}"), queue }
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
            if let Some(token) = value("t=") {
                return self.entry(token);
            }
            if let (Some(run), Some(token)) = (value("run="), value("r=")) {
                return self.entry_of_link(run, token);
            }
        }
        if !path.starts_with("/api/") {
            return Ok(PageAdmission::Page);
        }
        if !self.is_from_page(headers) {
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
    fn entry(&self, token: &str) -> ApiResult<PageAdmission> {
        if !self.token.is(token) {
            return Err(unknown());
        }
        let cookie = cookie(&self.cookie, self.token.as_str());
        Ok(PageAdmission::Entry { cookie, location: "/".to_owned() })
    }

    /// The answer to a link to one run.
    fn entry_of_link(&self, run: &str, token: &str) -> ApiResult<PageAdmission> {
        self.linked(run, token).ok_or_else(|| {
            ApiError::new(StatusCode::UNAUTHORIZED, "this link is not valid any more")
        })?;
        let cookie = cookie(&format!("{}-{run}", self.cookie), token);
        Ok(PageAdmission::Entry { cookie, location: format!("/?run={run}") })
    }

    /// The run of a link that is valid.
    fn linked(&self, run: &str, token: &str) -> Option<LinkedRun> {
        let name = RunName::try_from(run.to_owned()).ok()?;
        let link = self.queue.store().get(&name)?.link.clone()?;
        (token::digest(token) == link).then_some(LinkedRun { name, link })
    }

    /// Whether the request comes from the page itself, or from no page.
    fn is_from_page(&self, headers: &HeaderMap) -> bool {
        let site = text(headers, &HeaderName::from_static("sec-fetch-site"));
        let is_same_site = site.is_none_or(|site| matches!(site, "same-origin" | "none"));
        let origin = headers.get(ORIGIN).map(|it| it.to_str().unwrap_or_default());
        let is_own = |origin: &str| {
            self.hosts.iter().any(|host| origin.strip_prefix("http://") == Some(host))
        };
        is_same_site && origin.is_none_or(is_own)
    }

    /// Who asks for this path, if they may.
    fn visitor(&self, method: &Method, path: &str, headers: &HeaderMap) -> ApiResult<PageVisitor> {
        let lines = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok());
        let cookies = lines.flat_map(|line| line.split(';'));
        let cookies = cookies.filter_map(|it| it.trim().split_once('='));
        // Cookies of other pages are none of ours.
        let cookies: Vec<(&str, &str)> = cookies
            .filter_map(|(name, value)| Some((name.strip_prefix(&self.cookie)?, value)))
            .collect();
        if cookies.iter().any(|(rest, value)| rest.is_empty() && self.token.is(value)) {
            return Ok(PageVisitor::Owner);
        }
        let links = cookies.iter();
        let links = links.filter_map(|(rest, value)| self.linked(rest.strip_prefix('-')?, value));
        let links: Vec<LinkedRun> = links.collect();
        if links.is_empty() {
            return Err(unknown());
        }
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let linked = links.into_iter().find(|linked| is_read && is_readable(&linked.name, path));
        let why = "the link is for reading one run";
        linked.map(PageVisitor::Guest).ok_or_else(|| ApiError::new(StatusCode::FORBIDDEN, why))
    }
}

/// Whether a person with a link to a run may read this path: the run, and what is the same for all.
fn is_readable(run: &RunName, path: &str) -> bool {
    let of_run = path.strip_prefix("/api/runs/").and_then(|path| path.strip_prefix(run.as_str()));
    of_run.is_some_and(|rest| rest.is_empty() || rest.starts_with('/')) || path == "/api/templates"
}

/// A cookie that only this page gets, and no script.
fn cookie(name: &str, value: &str) -> String {
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000")
}

/// Checks a request, and sets the headers of the answer.
pub(crate) async fn check(
    State(guard): State<Arc<PageGuard>>,
    mut request: Request,
    next: Next,
) -> Response {
    let mut response = match guard.admit(&request) {
        Err(refusal) => refusal.into_response(),
        Ok(PageAdmission::Entry { cookie, location }) => {
            (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, location)]).into_response()
        }
        Ok(PageAdmission::Page) => next.run(request).await,
        Ok(PageAdmission::Visit(visitor)) => {
            request.extensions_mut().insert(visitor);
            next.run(request).await
        }
    };
    let headers = response.headers_mut();
    let mut set = |name, value| drop(headers.insert(name, HeaderValue::from_static(value)));
    set(CONTENT_SECURITY_POLICY, "default-src 'self'; frame-ancestors 'none'; base-uri 'none'");
    set(X_CONTENT_TYPE_OPTIONS, "nosniff");
    set(X_FRAME_OPTIONS, "DENY");
    set(REFERRER_POLICY, "no-referrer");
    set(CACHE_CONTROL, "no-store");
    response
}

fn unknown() -> ApiError {
    let why = "open the address that `sunder lab serve` has printed";
    ApiError::new(StatusCode::UNAUTHORIZED, why)
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
