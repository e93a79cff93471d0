//! Who may ask: a browser of this host that was opened with the token. Other pages that the same
//! browser shows, and names of other hosts that lead here, are refused.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, LOCATION, ORIGIN, REFERRER_POLICY,
    SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use keys::storage;
use random::RandomGenerator;
use subtle::ConstantTimeEq as _;

use crate::api::refuse;

/// The secret in the address of the page.
#[derive(Clone)]
pub(crate) struct PageToken(String);

/// The length of a token in bytes, of which hexadecimal has twice as many.
const TOKEN_LEN: usize = 16;

impl PageToken {
    /// The token in a file, which only this user can read. Creates the file if there is none, so
    /// that addresses stay valid when the server starts again.
    ///
    /// # Errors
    /// If the file cannot be read or written, or has something else.
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        let new = RandomGenerator::system().array::<TOKEN_LEN>().map_err(io::Error::other)?;
        let new = base16ct::lower::encode_string(&new);
        match storage::create(path, new.as_bytes(), 0o600) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
            created => return created.map(|()| Self(new)),
        }
        let token = std::fs::read_to_string(path)?;
        let is_token =
            token.len() == 2 * TOKEN_LEN && token.bytes().all(|it| it.is_ascii_hexdigit());
        if is_token {
            return Ok(Self(token));
        }
        Err(io::Error::other("this is no token; remove the file to get a new one"))
    }

    /// The token, for the address of the page.
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }

    fn is(&self, other: &str) -> bool {
        self.0.as_bytes().ct_eq(other.as_bytes()).into()
    }
}

/// What requests are checked against.
#[derive(Clone)]
pub(crate) struct PageGuard {
    token: PageToken,
    /// The names under which browsers of this host reach the page.
    hosts: [String; 2],
    /// The name of the cookie: pages on other ports of this host share cookies.
    cookie: String,
}

impl PageGuard {
    pub(crate) fn new(token: PageToken, address: SocketAddr) -> Self {
        let port = address.port();
        let hosts = [address.to_string(), format!("localhost:{port}")];
        Self { token, hosts, cookie: format!("sunder-{port}") }
    }

    /// Whether the request came to one of the page's names.
    fn is_to_page(&self, headers: &HeaderMap) -> bool {
        let host = text(headers, &HOST).unwrap_or_default();
        self.hosts.iter().any(|name| name.eq_ignore_ascii_case(host))
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

    fn has_cookie(&self, headers: &HeaderMap) -> bool {
        let cookies = headers.get_all(COOKIE).iter().filter_map(|it| it.to_str().ok());
        let mut cookies = cookies.flat_map(|line| line.split(';')).filter_map(|it| {
            let (name, value) = it.trim().split_once('=')?;
            (name == self.cookie).then_some(value)
        });
        cookies.any(|value| self.token.is(value))
    }

    /// The answer to the address with the token: a cookie, and the page's address without it.
    fn welcome(&self) -> Response {
        let cookie = format!(
            "{}={}; Path=/; HttpOnly; SameSite=Strict; Max-Age=31536000",
            self.cookie,
            self.token.as_str()
        );
        (StatusCode::SEE_OTHER, [(SET_COOKIE, cookie), (LOCATION, "/".to_owned())]).into_response()
    }
}

/// Checks a request, and sets the headers of the answer.
pub(crate) async fn check(
    State(guard): State<Arc<PageGuard>>,
    request: Request,
    next: Next,
) -> Response {
    let headers = request.headers();
    let mut response = if !guard.is_to_page(headers) {
        refuse(StatusCode::MISDIRECTED_REQUEST, "this is not the page's address")
    } else if let Some(token) = token_of(&request) {
        if guard.token.is(token) { guard.welcome() } else { unknown() }
    } else if !guard.is_from_page(headers) {
        refuse(StatusCode::FORBIDDEN, "another page asks; only the page itself may")
    } else if guard.has_cookie(headers) || !request.uri().path().starts_with("/api/") {
        // The page itself is no secret: it says how to open it.
        next.run(request).await
    } else {
        unknown()
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

fn unknown() -> Response {
    refuse(StatusCode::UNAUTHORIZED, "open the address that `sunder lab serve` has printed")
}

/// The token in the address of the page, if the request has one.
fn token_of(request: &Request) -> Option<&str> {
    let query = request.uri().query().filter(|_| request.uri().path() == "/")?;
    query.split('&').find_map(|part| part.strip_prefix("t="))
}

fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    headers.get(name)?.to_str().ok()
}
