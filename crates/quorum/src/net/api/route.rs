//! Which request is for which operation, and how refusals are answered.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;

use super::{Encoding, Refusal, RefusalKind};

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Register,
    Sign(Encoding),
    StartRefresh,
    CancelRefresh,
    Refresh,
    Witnesses,
    PublicKey,
    Headers,
    Health,
    Specification,
}

impl Operation {
    /// Its name in the audit log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Sign(_) => "sign",
            Self::StartRefresh | Self::Refresh => "refresh",
            Self::CancelRefresh => "cancel",
            Self::Witnesses => "witnesses",
            Self::PublicKey => "public-key",
            Self::Headers => "headers",
            Self::Health => "health",
            Self::Specification => "specification",
        }
    }
}

/// The operations by path and method.
pub(super) const ROUTES: &[(&str, &Method, Operation)] = &[
    ("/v1/messages", &Method::POST, Operation::Register),
    ("/v1/signatures", &Method::POST, Operation::Sign(Encoding::Pkcs1)),
    ("/v1/refreshes", &Method::POST, Operation::StartRefresh),
    ("/v1/refreshes", &Method::GET, Operation::Refresh),
    ("/v1/refreshes", &Method::DELETE, Operation::CancelRefresh),
    ("/v1/witnesses", &Method::GET, Operation::Witnesses),
    ("/v1/public-key", &Method::GET, Operation::PublicKey),
    ("/v1/headers", &Method::GET, Operation::Headers),
    ("/v1/health", &Method::GET, Operation::Health),
    ("/v1/openapi.json", &Method::GET, Operation::Specification),
];

/// A request that has no operation.
#[derive(Debug)]
pub(super) struct Unknown {
    pub(super) status: StatusCode,
    pub(super) reason: String,
    /// The methods that its path takes, if it has another one.
    pub(super) allowed: Option<HeaderValue>,
}

/// The operation of a request.
///
/// # Errors
/// When it has none.
pub(super) fn operation(
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Result<Operation, Unknown> {
    let unknown = |status, reason: &str| Unknown { status, reason: reason.into(), allowed: None };
    let of_path: Vec<_> = ROUTES.iter().filter(|(known, ..)| *known == path).collect();
    if of_path.is_empty() {
        let reason = "there is no such path: GET /v1/openapi.json lists all of them";
        return Err(unknown(StatusCode::NOT_FOUND, reason));
    }
    let Some((.., operation)) = of_path.iter().find(|(_, known, _)| *known == method) else {
        let allowed: Vec<&str> = of_path.iter().map(|(_, known, _)| known.as_str()).collect();
        let allowed = allowed.join(", ");
        let reason = format!("this path takes {allowed} only");
        let allowed = HeaderValue::from_str(&allowed).ok();
        return Err(Unknown { allowed, ..unknown(StatusCode::METHOD_NOT_ALLOWED, &reason) });
    };
    let malformed = |reason| Err(unknown(StatusCode::BAD_REQUEST, reason));
    match (operation, query) {
        (Operation::Sign(_), Some(query)) => {
            let encoding = query.strip_prefix("encoding=").and_then(Encoding::from_name);
            let reason = "the query must be encoding=pkcs1 or encoding=pss, or be left out";
            encoding.map_or_else(|| malformed(reason), |encoding| Ok(Operation::Sign(encoding)))
        }
        (_, Some(_)) => malformed("this path takes no query: leave it out"),
        (operation, None) => Ok(*operation),
    }
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response<Full<Bytes>> {
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    answer(status, "application/json", text)
}

/// An answer with a body of this type.
pub(super) fn answer(
    status: StatusCode,
    content_type: &'static str,
    body: impl Into<Bytes>,
) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}

/// The answer to a request that failed, with one line that says why.
pub(super) fn error(status: StatusCode, reason: &str) -> Response<Full<Bytes>> {
    #[derive(Serialize)]
    struct Document<'a> {
        error: &'a str,
    }
    json(status, &Document { error: reason })
}

/// The answer to a request that the service refused.
pub(super) fn refusal(refusal: &Refusal) -> Response<Full<Bytes>> {
    let status = match refusal.kind {
        RefusalKind::Malformed => StatusCode::BAD_REQUEST,
        RefusalKind::Forbidden => StatusCode::FORBIDDEN,
        RefusalKind::Conflict => StatusCode::CONFLICT,
        RefusalKind::Busy => StatusCode::TOO_MANY_REQUESTS,
        RefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        RefusalKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        RefusalKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error(status, &refusal.reason)
}
