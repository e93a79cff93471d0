//! What the page asks for about accounts: to sign in and out, to accept an invitation, to change a
//! password, and what the account uses.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use accounts::{AccountSecret, SESSION_VALIDITY_S};
use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Extension, State};
use axum::http::header::SET_COOKIE;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{AppendHeaders, IntoResponse as _, Response};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::access::RunVisitor;
use crate::account_service::AccountService;
use crate::error::{ApiError, ApiResult};
use crate::panel_state::PanelState;
use crate::visitor::{PageVisitor, SignedInAccount};

/// Where a request comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestSource(pub(crate) IpAddr);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginRequest {
    name: String,
    password: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct AcceptRequest {
    secret: String,
    password: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct PasswordRequest {
    old: String,
    new: String,
}

/// Whether there are accounts, who is signed in, and what the account uses.
pub(crate) async fn session(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
) -> Json<Value> {
    let Some(service) = state.queue().accounts() else {
        return Json(json!({ "accounts": false, "name": null, "usage": null }));
    };
    let PageVisitor::Account(SignedInAccount { account, .. }) = visitor else {
        return Json(json!({ "accounts": true, "name": null, "usage": null }));
    };
    let limits = service.limits;
    let usage = state.queue().store().usage(Some(account.id), limits.run_bytes);
    Json(json!({
        "accounts": true,
        "name": account.name,
        "usage": {
            "runs": usage.runs,
            "unfinished": usage.unfinished,
            "max_unfinished": limits.unfinished,
            "bytes": usage.bytes,
            "max_bytes": limits.bytes,
            "seconds_today": service.time_today(account.id).as_secs(),
            "max_seconds_a_day": limits.time_a_day.as_secs(),
        },
    }))
}

pub(crate) async fn login(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
    source: Option<Extension<RequestSource>>,
    request: Result<Json<LoginRequest>, JsonRejection>,
) -> ApiResult<Response> {
    let service = service(&state)?;
    let LoginRequest { name, password } = request?.0;
    let session = service.login(name, password, address(source)).await?;
    end_earlier(&service, &visitor)?;
    Ok(signed_in(&state, &session))
}

pub(crate) async fn logout(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
) -> ApiResult<Response> {
    let service = service(&state)?;
    if let PageVisitor::Account(visitor) = visitor {
        service.end_session(visitor.session.as_str())?;
        state.queue().changed();
    }
    Ok(with_cookie(state.session_cookie().empty()))
}

pub(crate) async fn accept(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
    request: Result<Json<AcceptRequest>, JsonRejection>,
) -> ApiResult<Response> {
    let service = service(&state)?;
    let AcceptRequest { secret, password } = request?.0;
    let session = service.accept(secret, password).await?;
    end_earlier(&service, &visitor)?;
    Ok(signed_in(&state, &session))
}

pub(crate) async fn change_password(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
    source: Option<Extension<RequestSource>>,
    request: Result<Json<PasswordRequest>, JsonRejection>,
) -> ApiResult<Response> {
    let service = service(&state)?;
    let PageVisitor::Account(SignedInAccount { account, .. }) = visitor else {
        return Err(no_accounts());
    };
    let PasswordRequest { old, new } = request?.0;
    let session = service.change_password(account, old, new, address(source)).await?;
    state.queue().changed();
    Ok(signed_in(&state, &session))
}

/// Ends the session that the browser had: it is not kept for another one.
fn end_earlier(service: &AccountService, visitor: &PageVisitor) -> ApiResult<()> {
    match visitor {
        PageVisitor::Account(visitor) => service.end_session(visitor.session.as_str()),
        _ => Ok(()),
    }
}

fn service(state: &PanelState) -> ApiResult<Arc<AccountService>> {
    state.queue().accounts().cloned().ok_or_else(no_accounts)
}

fn no_accounts() -> ApiError {
    ApiError::new(StatusCode::NOT_FOUND, "this server has no accounts")
}

fn address(source: Option<Extension<RequestSource>>) -> IpAddr {
    source.map_or(IpAddr::V4(Ipv4Addr::LOCALHOST), |Extension(source)| source.0)
}

fn signed_in(state: &PanelState, session: &AccountSecret) -> Response {
    with_cookie(state.session_cookie().of(session.as_str(), SESSION_VALIDITY_S))
}

fn with_cookie(cookie: String) -> Response {
    (StatusCode::NO_CONTENT, AppendHeaders([(SET_COOKIE, cookie)])).into_response()
}

/// Where a request comes from, if a proxy forwards it: the last address is the one that the proxy
/// has seen itself.
pub(crate) fn forwarded_source(headers: &HeaderMap) -> Option<IpAddr> {
    let line = headers.get_all("x-forwarded-for").iter().next_back()?.to_str().ok()?;
    line.rsplit(',').next()?.trim().parse().ok()
}
