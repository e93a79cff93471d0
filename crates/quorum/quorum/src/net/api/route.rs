//! Maps requests to operations, and refusals to answers.

use bytes::Bytes;
use http_body_util::Full;
use hyper::header::{CONTENT_TYPE, HeaderValue};
use hyper::{Method, Response, StatusCode};
use serde::Serialize;

use super::{ApiEncoding, ApiPermissions, ApiRefusal, ApiRefusalKind};
use crate::protocol::policy::MessageDigest;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ApiOperation {
    Register,
    Withdraw(MessageDigest),
    Show(MessageDigest),
    Pending,
    /// In this encoding, or the usual one of the key.
    Sign(Option<ApiEncoding>),
    Command,
    StartRefresh,
    CancelRefresh,
    WithdrawApproval,
    Refresh,
    Witnesses,
    PublicKey,
    Headers,
    Bundle,
    Health,
    Specification,
}

impl ApiOperation {
    /// The name of the operation in the audit log.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Register => "register",
            Self::Withdraw(_) => "withdraw",
            Self::Show(_) => "show",
            Self::Pending => "pending",
            Self::Sign(_) => "sign",
            Self::Command => "command",
            Self::StartRefresh | Self::Refresh => "refresh",
            Self::CancelRefresh => "cancel",
            Self::WithdrawApproval => "withdraw-approval",
            Self::Witnesses => "witnesses",
            Self::PublicKey => "public-key",
            Self::Headers => "headers",
            Self::Bundle => "bundle",
            Self::Health => "health",
            Self::Specification => "specification",
        }
    }

    /// Why a socket with these permissions does not allow it, in one line that says what to do.
    /// `None` if it does.
    pub(super) fn missing_permission(self, allowed: ApiPermissions) -> Option<&'static str> {
        match self {
            Self::Register if !allowed.register => Some(
                "this socket is not for registering: use the `register_socket` of the server's \
                 configuration, as a user whom its `register_access` allows",
            ),
            Self::Withdraw(_) if !(allowed.register || allowed.administer) => Some(
                "this socket is not for withdrawing: use the `register_socket` or the \
                 `admin_socket` of the server's configuration",
            ),
            Self::Sign(_) | Self::Command if !allowed.sign => Some(
                "this socket is not for signing: use the `socket` of the server's configuration, \
                 as a user whom its `socket_access` allows",
            ),
            Self::StartRefresh | Self::CancelRefresh | Self::WithdrawApproval
                if !allowed.administer =>
            {
                Some(
                    "this socket is not for refreshes: use the `admin_socket` of the server's \
                     configuration, as a user whom its `admin_access` allows",
                )
            }
            Self::Register
            | Self::Withdraw(_)
            | Self::Sign(_)
            | Self::Command
            | Self::StartRefresh
            | Self::CancelRefresh
            | Self::WithdrawApproval
            | Self::Show(_)
            | Self::Pending
            | Self::Refresh
            | Self::Witnesses
            | Self::PublicKey
            | Self::Headers
            | Self::Bundle
            | Self::Health
            | Self::Specification => None,
        }
    }
}

/// The path of one message, with its SHA-256 in place of the last part.
const MESSAGE_PATH: &str = "/v1/messages/{digest}";

/// Stands for the digest in [`ROUTES`].
const ANY: MessageDigest = MessageDigest([0; 32]);

/// The operations by path and method.
pub(super) const ROUTES: &[(&str, &Method, ApiOperation)] = &[
    ("/v1/messages", &Method::POST, ApiOperation::Register),
    (MESSAGE_PATH, &Method::GET, ApiOperation::Show(ANY)),
    (MESSAGE_PATH, &Method::DELETE, ApiOperation::Withdraw(ANY)),
    ("/v1/pending", &Method::GET, ApiOperation::Pending),
    ("/v1/signatures", &Method::POST, ApiOperation::Sign(None)),
    ("/v1/commands", &Method::POST, ApiOperation::Command),
    ("/v1/refreshes", &Method::POST, ApiOperation::StartRefresh),
    ("/v1/refreshes", &Method::GET, ApiOperation::Refresh),
    ("/v1/refreshes", &Method::DELETE, ApiOperation::CancelRefresh),
    ("/v1/refreshes/approval", &Method::DELETE, ApiOperation::WithdrawApproval),
    ("/v1/witnesses", &Method::GET, ApiOperation::Witnesses),
    ("/v1/public-key", &Method::GET, ApiOperation::PublicKey),
    ("/v1/headers", &Method::GET, ApiOperation::Headers),
    ("/v1/bundle", &Method::GET, ApiOperation::Bundle),
    ("/v1/health", &Method::GET, ApiOperation::Health),
    ("/v1/openapi.json", &Method::GET, ApiOperation::Specification),
];

/// A request that matches no operation.
#[derive(Debug)]
pub(super) struct UnknownOperation {
    pub(super) status: StatusCode,
    pub(super) reason: String,
    /// The methods that its path supports, if it has another one.
    pub(super) allowed: Option<HeaderValue>,
}

/// The operation of a request.
///
/// # Errors
/// If it matches none.
pub(super) fn operation(
    method: &Method,
    path: &str,
    query: Option<&str>,
) -> Result<ApiOperation, UnknownOperation> {
    let unknown =
        |status, reason: &str| UnknownOperation { status, reason: reason.into(), allowed: None };
    let digest = path.strip_prefix("/v1/messages/").map(MessageDigest::from_hex);
    let path = if digest.is_some() { MESSAGE_PATH } else { path };
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
        return Err(UnknownOperation {
            allowed,
            ..unknown(StatusCode::METHOD_NOT_ALLOWED, &reason)
        });
    };
    let malformed = |reason| Err(unknown(StatusCode::BAD_REQUEST, reason));
    match (operation, query) {
        (ApiOperation::Sign(_), Some(query)) => {
            let encoding = query.strip_prefix("encoding=").and_then(ApiEncoding::from_name);
            let reason = "the query must be encoding=pkcs1, encoding=pkcs1-sha512, encoding=pss or \
                          encoding=ed25519, or be left out";
            let encoding = encoding.map(|encoding| ApiOperation::Sign(Some(encoding)));
            encoding.map_or_else(|| malformed(reason), Ok)
        }
        (_, Some(_)) => malformed("this path takes no query: leave it out"),
        (ApiOperation::Show(_) | ApiOperation::Withdraw(_), None) => {
            let Some(digest) = digest.flatten() else {
                return malformed("the path must end with a SHA-256, 64 hexadecimal digits");
            };
            Ok(match operation {
                ApiOperation::Show(_) => ApiOperation::Show(digest),
                _ => ApiOperation::Withdraw(digest),
            })
        }
        (operation, None) => Ok(*operation),
    }
}

/// An answer in JSON.
pub(super) fn json(status: StatusCode, document: &impl Serialize) -> Response<Full<Bytes>> {
    let mut text = serde_json::to_vec(document).unwrap_or_default();
    text.push(b'\n');
    answer(status, "application/json", text)
}

/// An answer with a body of this content type.
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
    struct ApiErrorBody<'a> {
        error: &'a str,
    }
    json(status, &ApiErrorBody { error: reason })
}

/// The answer to a request that the service refused.
pub(super) fn refusal(refusal: &ApiRefusal) -> Response<Full<Bytes>> {
    let status = match refusal.kind {
        ApiRefusalKind::Malformed => StatusCode::BAD_REQUEST,
        ApiRefusalKind::Forbidden => StatusCode::FORBIDDEN,
        ApiRefusalKind::NotFound => StatusCode::NOT_FOUND,
        ApiRefusalKind::Conflict => StatusCode::CONFLICT,
        ApiRefusalKind::Busy => StatusCode::TOO_MANY_REQUESTS,
        ApiRefusalKind::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        ApiRefusalKind::TimedOut => StatusCode::GATEWAY_TIMEOUT,
        ApiRefusalKind::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    };
    error(status, &refusal.reason)
}
