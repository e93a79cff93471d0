//! Reads the bodies of requests: within a bounded time, and few long ones at a time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::LengthLimitError;
use tokio::sync::Semaphore;
use tokio::time::timeout;

use crate::error::{ApiError, ApiResult};
use crate::visitor::PageVisitor;

/// The maximum length of the body of a request, in bytes: files are in it.
const MAX_BODY: usize = 16 << 20;

/// A body up to this length, in bytes, is read whatever else is read.
const SHORT_BODY: usize = 256 << 10;

/// The maximum length of the body of a person who is not signed in, in bytes.
const STRANGERS_BODY: usize = 8 << 10;

/// How many longer bodies are read and answered at a time.
const MAX_LONG_BODIES: usize = 4;

/// The time within which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// The places of long bodies.
pub(crate) fn long_bodies() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(MAX_LONG_BODIES))
}

/// Reads the body of a request before it is handled.
pub(crate) async fn read(
    State(long_bodies): State<Arc<Semaphore>>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let length = announced(&head.headers);
    let is_stranger = head.extensions.get() == Some(&PageVisitor::Stranger);
    let is_long = length > SHORT_BODY && !is_stranger;
    let _place = if is_long && length <= MAX_BODY {
        let Ok(place) = long_bodies.try_acquire_owned() else {
            let why = "other long requests are read: repeat it in a moment";
            return ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why).into_response();
        };
        Some(place)
    } else {
        None
    };
    let limit = match (is_stranger, is_long) {
        (true, _) => STRANGERS_BODY,
        (false, true) => MAX_BODY,
        (false, false) => SHORT_BODY,
    };
    match collect(body, length, limit).await {
        Ok(body) => next.run(Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The length that a request announces; 0 if it announces none.
fn announced(headers: &HeaderMap) -> usize {
    let length = headers.get(CONTENT_LENGTH).and_then(|it| it.to_str().ok()?.parse().ok());
    length.unwrap_or_default()
}

async fn collect(body: Body, length: usize, limit: usize) -> ApiResult<Body> {
    let too_long = || {
        let why = format!("the request has more than {limit} bytes");
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, why)
    };
    if length > limit {
        return Err(too_long());
    }
    match timeout(BODY_TIMEOUT, to_bytes(body, limit)).await {
        Ok(Ok(bytes)) => Ok(bytes.into()),
        Ok(Err(error)) if error.source().is_some_and(<dyn Error>::is::<LengthLimitError>) => {
            Err(too_long())
        }
        Ok(Err(_)) => Err(ApiError::new(StatusCode::BAD_REQUEST, "the body was cut off")),
        Err(_) => {
            let why = format!("the body did not arrive within {} s", BODY_TIMEOUT.as_secs());
            Err(ApiError::new(StatusCode::REQUEST_TIMEOUT, why))
        }
    }
}
