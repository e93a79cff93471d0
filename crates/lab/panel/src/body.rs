//! Reads the bodies of requests: within a bounded time, and few long ones at a time.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use accounts::AccountId;
use axum::body::{Body, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};
use http_body_util::LengthLimitError;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;

use crate::error::{ApiError, ApiResult};
use crate::panel_state::PanelState;
use crate::visitor::PageVisitor;

/// The maximum length of the body of a request, in bytes: files are in it.
const MAX_BODY: usize = 16 << 20;

/// A body up to this length, in bytes, is read whatever else is read.
const SHORT_BODY: usize = 256 << 10;

/// The maximum length of a body, in bytes, if the server does not know who sends it: also where
/// none belongs, as with a request for the page itself.
const UNKNOWN_BODY: usize = 8 << 10;

/// The time within which a body must arrive.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);

/// Reads the body of a request before it is handled.
pub(crate) async fn read(
    State(state): State<PanelState>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let length = announced(&head.headers);
    let visitor: Option<&PageVisitor> = head.extensions.get();
    let is_known = visitor.is_some_and(PageVisitor::is_known);
    let is_long = length > SHORT_BODY && is_known;
    let _places = if is_long && length <= MAX_BODY {
        match long_places(&state, visitor.and_then(PageVisitor::account)) {
            Ok(places) => places,
            Err(refusal) => return refusal.into_response(),
        }
    } else {
        Vec::new()
    };
    let limit = match (is_known, is_long) {
        (false, _) => UNKNOWN_BODY,
        (true, true) => MAX_BODY,
        (true, false) => SHORT_BODY,
    };
    match collect(body, length, limit).await {
        Ok(body) => next.run(Request::from_parts(head, body)).await,
        Err(refusal) => refusal.into_response(),
    }
}

/// The places of a long body: one of all, and one of the account.
fn long_places(
    state: &PanelState,
    account: Option<AccountId>,
) -> ApiResult<Vec<OwnedSemaphorePermit>> {
    let all = Arc::clone(&state.long_bodies).try_acquire_owned().map_err(|_| {
        let why = "other long requests are read: repeat it in a moment";
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, why)
    })?;
    let accounts = state.queue.accounts().zip(account);
    let own = accounts.map(|(accounts, id)| accounts.long_body_place(id)).transpose()?;
    Ok(own.into_iter().chain([all]).collect())
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
