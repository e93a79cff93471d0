//! Refusals, as the page gets them.

use std::io::{self, ErrorKind};

use axum::Json;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::http::header::CONNECTION;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;

use crate::quota::QuotaExceeded;
use crate::refusal::RefusedRequest;

/// An answer, or a refusal.
pub(crate) type ApiResult<T> = Result<T, ApiError>;

/// Why a request is not answered: a status, a line, and the part of the request that is wrong.
#[derive(Debug)]
pub(crate) struct ApiError {
    status: StatusCode,
    error: String,
    field: Option<String>,
}

impl ApiError {
    pub(crate) fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), field: None }
    }

    pub(crate) fn no_run() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such run")
    }

    pub(crate) fn no_file() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such file")
    }

    /// The run is in a state in which this cannot be done.
    pub(crate) fn conflict(error: &str) -> Self {
        Self::new(StatusCode::CONFLICT, error)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut document = json!({ "error": self.error });
        if let Some(field) = self.field {
            document["field"] = field.into();
        }
        let mut response = (self.status, Json(document)).into_response();
        if self.status == StatusCode::SERVICE_UNAVAILABLE {
            // The connection makes room for another one.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        response
    }
}

impl From<RefusedRequest> for ApiError {
    fn from(refused: RefusedRequest) -> Self {
        Self {
            status: StatusCode::UNPROCESSABLE_ENTITY,
            error: refused.why,
            field: Some(refused.field),
        }
    }
}

impl From<QuotaExceeded> for ApiError {
    fn from(exceeded: QuotaExceeded) -> Self {
        let status = match exceeded {
            QuotaExceeded::Unfinished(_) | QuotaExceeded::Time(_) => StatusCode::TOO_MANY_REQUESTS,
            QuotaExceeded::Kept | QuotaExceeded::Bytes { .. } | QuotaExceeded::TotalBytes => {
                StatusCode::INSUFFICIENT_STORAGE
            }
        };
        Self::new(status, exceeded.to_string())
    }
}

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self::new(rejection.status(), in_one_line(&rejection.body_text()))
    }
}

impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), in_one_line(&rejection.body_text()))
    }
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::NotFound => Self::no_file(),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                Self::new(StatusCode::INSUFFICIENT_STORAGE, "the disk is full: delete runs")
            }
            _ => Self::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
