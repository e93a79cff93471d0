//! What the page asks for.

use std::io;
use std::sync::Arc;
use std::time::SystemTime;

use axum::body::Body;
use axum::extract::rejection::{JsonRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post, put};
use axum::{Json, Router};
use futures_util::stream::unfold;
use lab::{Experiment, experiment};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::access::{AccessibleRun, RunVisitor};
use crate::account_api;
use crate::document;
use crate::error::{ApiError, ApiResult};
use crate::events::events;
use crate::panel_state::{MAX_LINK_VIEWERS, MAX_VIEWERS, PanelState};
use crate::plan::{FrontQuery, PlanQuery, PlanQuestion, SurfaceQuery};
use crate::prediction;
use crate::refusal::RefusedRequest;
use crate::request::RunRequest;
use crate::run::{RunName, RunRecord, RunState};
use crate::store::RunStore;
use crate::template::{self, RunTemplate};
use crate::token::PageToken;
use crate::visitor::PageVisitor;

/// The document that specifies the interface, in JSON.
pub(crate) const OPENAPI: &str = include_str!("../../../../docs/formats/panel-api.json");

/// How many runs may wait.
const MAX_QUEUED: usize = 100;

/// How many bytes of a file are read at a time.
const PIECE_LEN: usize = 64 << 10;

/// The maximum length of a note.
const MAX_NOTE: usize = 4_000;

/// How many runs a list has, by default and at most.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

/// The paths of the interface, with what answers there.
pub(crate) fn paths() -> [(&'static str, MethodRouter<PanelState>); 21] {
    [
        ("/api/openapi.json", get(async || ([(CONTENT_TYPE, "application/json")], OPENAPI))),
        (
            "/api/session",
            get(account_api::session).post(account_api::login).delete(account_api::logout),
        ),
        ("/api/invitation", post(account_api::accept)),
        ("/api/password", put(account_api::change_password)),
        ("/api/templates", get(templates)),
        ("/api/networks", get(async || Json(template::networks()))),
        ("/api/experiments", get(experiments)),
        ("/api/toml", post(toml)),
        ("/api/predict", post(predict)),
        ("/api/plan", post(answer::<PlanQuery>)),
        ("/api/plan/surface", post(answer::<SurfaceQuery>)),
        ("/api/plan/front", post(answer::<FrontQuery>)),
        ("/api/live", get(live)),
        ("/api/queue", get(queue)),
        ("/api/runs", get(list).post(create)),
        ("/api/runs/{id}", get(show).patch(annotate).delete(delete)),
        ("/api/runs/{id}/events", get(watch)),
        ("/api/runs/{id}/stop", post(stop)),
        ("/api/runs/{id}/resume", post(resume)),
        ("/api/runs/{id}/link", post(link).delete(unlink)),
        ("/api/runs/{id}/files/{name}", get(file)),
    ]
}

/// The routes of the interface.
pub(crate) fn routes() -> Router<PanelState> {
    paths().into_iter().fold(Router::new(), |router, (path, answer)| router.route(path, answer))
}

async fn templates() -> Json<Vec<Value>> {
    Json(template::templates().iter().map(RunTemplate::document).collect())
}

async fn experiments() -> ApiResult<Json<Vec<Value>>> {
    let described = experiment::built_in().map(|(name, text)| {
        let file = format!("{name}.toml");
        let experiment = Experiment::parse(file.as_ref(), text)
            .map_err(|error| ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))?;
        Ok(json!({
            "name": name,
            "about": experiment.about(),
            "paper": experiment.paper(),
            "trials": experiment.trials(),
        }))
    });
    described.collect::<ApiResult<_>>().map(Json)
}

async fn toml(
    State(state): State<PanelState>,
    request: Result<Json<RunRequest>, JsonRejection>,
) -> ApiResult<String> {
    let Json(request) = request?;
    let isolation = state.isolation;
    Ok(read_experiment(&state, move || request.experiment(isolation)).await??.text)
}

/// Reads an experiment in a thread of its own, because a large one takes long.
async fn read_experiment<T: Send + 'static>(
    state: &PanelState,
    read: impl FnOnce() -> T + Send + 'static,
) -> ApiResult<T> {
    let experiments = Arc::clone(&state.experiments);
    let place = experiments.acquire_owned().await.map_err(io::Error::other)?;
    // The thread continues if the client goes away, so the place is the thread's.
    let read = move || {
        let read = read();
        drop(place);
        read
    };
    Ok(spawn_blocking(read).await.map_err(io::Error::other)?)
}

async fn predict(request: Result<Json<RunRequest>, JsonRejection>) -> ApiResult<Json<Value>> {
    Ok(Json(prediction::predicted(request?.0).await??))
}

/// Computes an answer of the channel model.
async fn answer<Q: PlanQuestion>(
    State(state): State<PanelState>,
    query: Result<Json<Q>, JsonRejection>,
) -> ApiResult<Json<Value>> {
    let Json(query) = query?;
    let place = state.plans.acquire().await.map_err(io::Error::other)?;
    let answer = spawn_blocking(move || query.answer()).await.map_err(io::Error::other)?;
    drop(place);
    Ok(Json(answer?))
}

async fn live(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
) -> ApiResult<Json<Value>> {
    if !matches!(visitor, PageVisitor::Owner) {
        let why = "what runs on the host is for its administrator: see `sunder status` there";
        return Err(ApiError::new(StatusCode::FORBIDDEN, why));
    }
    Ok(Json(state.live.get(state.queue.program()).await?))
}

/// The runs of this visitor that run or wait. Those of others count for the places only.
async fn queue(State(state): State<PanelState>, RunVisitor(visitor): RunVisitor) -> Json<Value> {
    let waiting = state.queue.waiting();
    let running = state.queue.running();
    let seconds_left = running.as_ref().and_then(|(_, seconds)| *seconds);
    let store = state.queue.store();
    let record = running.and_then(|(name, _)| store.get(&name));
    let record = record.filter(|run| visitor.may_see(run));
    let places =
        waiting.iter().zip(1..).filter_map(|(name, place)| Some((store.get(name)?, place)));
    let own = places.filter(|(run, _)| visitor.may_see(run));
    let queued: Vec<Value> = own
        .map(|(run, place): (_, usize)| {
            let mut document = document::summary(run, None);
            document["place"] = place.into();
            document
        })
        .collect();
    Json(json!({
        "running": record.map(|record| document::summary(record, seconds_left)),
        "queued": queued,
        "seconds_left": seconds_left,
    }))
}

#[derive(Deserialize)]
struct ListQuery {
    limit: Option<usize>,
    before: Option<String>,
    #[serde(default)]
    search: String,
}

async fn list(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
    query: Result<Query<ListQuery>, QueryRejection>,
) -> ApiResult<Json<Value>> {
    let Query(query) = query?;
    let before = query.before.map(RunName::try_from).transpose().map_err(|_| ApiError::no_run())?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let is_visible = |run: &RunRecord| visitor.may_see(run);
    let (runs, total) = state.queue.store().list(before.as_ref(), &query.search, limit, is_visible);
    let runs: Vec<Value> =
        runs.iter().map(|record| document::summary(record, seconds_left(&state, record))).collect();
    Ok(Json(json!({ "runs": runs, "total": total })))
}

async fn create(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
    request: Result<Json<RunRequest>, JsonRejection>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let Json(request) = request?;
    let isolation = state.isolation;
    let (requested, request) =
        read_experiment(&state, move || (request.experiment(isolation), request)).await?;
    let requested = requested?;
    let id = RunName::new()?;
    let record = RunRecord {
        id: id.clone(),
        title: requested.title,
        file: format!("{}.toml", requested.name),
        request: request.without_files(),
        created: humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
        state: RunState::Queued,
        done: 0,
        total: requested.experiment.trials(),
        invalid: 0,
        note: String::new(),
        error: None,
        owner: visitor.account(),
        link: None,
    };
    // One lock for both, so that requests at the same time cannot exceed a quota together.
    let mut store = state.queue.store();
    has_room(&state, &store, &record)?;
    store.add(record, &requested.text, requested.archive.as_deref())?;
    drop(store);
    state.queue.added();
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))))
}

/// Whether this run may wait.
fn has_room(state: &PanelState, store: &RunStore, run: &RunRecord) -> ApiResult<()> {
    if let Some((accounts, id)) = state.queue.accounts().zip(run.owner) {
        let limits = accounts.limits;
        let [own, all] = [Some(id), None].map(|of| store.usage(of, limits.run_bytes));
        let held = store.bytes_of(&run.id);
        return Ok(limits.check(own, all, accounts.time_today(id), held)?);
    }
    if store.queued().count() < MAX_QUEUED {
        return Ok(());
    }
    let error = format!("{MAX_QUEUED} runs wait already: stop some, or wait");
    Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, error))
}

/// About how many seconds a run still takes, if it runs and a trial is done.
fn seconds_left(state: &PanelState, record: &RunRecord) -> Option<f64> {
    let (name, seconds) = state.queue.running()?;
    seconds.filter(|_| name == record.id)
}

async fn show(State(state): State<PanelState>, run: AccessibleRun) -> ApiResult<Json<Value>> {
    let record = run.record();
    let directory = state.queue.store().directory_of(&record.id);
    let seconds_left = seconds_left(&state, &record);
    let read = move || document::whole(&record, &directory, seconds_left);
    Ok(Json(read_experiment(&state, read).await??))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotation {
    note: String,
}

async fn annotate(
    State(state): State<PanelState>,
    run: AccessibleRun,
    annotation: Result<Json<Annotation>, JsonRejection>,
) -> ApiResult<StatusCode> {
    let record = run.record();
    let Json(Annotation { note }) = annotation?;
    if note.len() > MAX_NOTE {
        return Err(RefusedRequest::new("note", format!("write at most {MAX_NOTE} bytes")).into());
    }
    state.queue.store().change(&record.id, |record| record.note = note)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete(State(state): State<PanelState>, run: AccessibleRun) -> ApiResult<StatusCode> {
    let record = run.record();
    // One lock for both, so that it does not begin in between.
    let mut store = state.queue.store();
    if !store.get(&record.id).ok_or_else(ApiError::no_run)?.state.is_over() {
        return Err(ApiError::conflict("it waits or runs: stop it first"));
    }
    store.remove(&record.id)?;
    drop(store);
    state.queue.changed();
    Ok(StatusCode::NO_CONTENT)
}

async fn watch(
    State(state): State<PanelState>,
    RunVisitor(visitor): RunVisitor,
    run: AccessibleRun,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let record = run.record();
    let mut places = vec![place(&state.viewers, MAX_VIEWERS)?];
    match &visitor {
        PageVisitor::LinkHolder(_) => places.push(place(&state.link_viewers, MAX_LINK_VIEWERS)?),
        PageVisitor::Account(visitor) => {
            let accounts = state.queue.accounts();
            let place = accounts.map(|it| it.watching_place(visitor.account.id)).transpose()?;
            places.extend(place);
        }
        PageVisitor::Owner | PageVisitor::Stranger => {}
    }
    // The number of the last event that a browser has got is the place after it.
    let last = headers.get("last-event-id").and_then(|it| it.to_str().ok()?.parse().ok());
    let events = events(Arc::clone(&state.queue), record.id, last.unwrap_or(0), visitor, places);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

/// A place among those who watch runs.
fn place(places: &Arc<Semaphore>, number: usize) -> ApiResult<OwnedSemaphorePermit> {
    Arc::clone(places).try_acquire_owned().map_err(|_| {
        let error = format!("{number} pages watch runs already: close some");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error)
    })
}

async fn stop(State(state): State<PanelState>, run: AccessibleRun) -> ApiResult<StatusCode> {
    let record = run.record();
    if state.queue.stop(&record.id)? {
        return Ok(StatusCode::ACCEPTED);
    }
    Err(ApiError::conflict("it is over already"))
}

async fn resume(State(state): State<PanelState>, run: AccessibleRun) -> ApiResult<StatusCode> {
    let record = run.record();
    let mut store = state.queue.store();
    let now = store.get(&record.id).ok_or_else(ApiError::no_run)?.state;
    if !now.is_over() || now == RunState::Finished {
        return Err(ApiError::conflict("nothing of it is left to run"));
    }
    has_room(&state, &store, &record)?;
    store.change(&record.id, |record| {
        record.state = RunState::Queued;
        record.error = None;
    })?;
    drop(store);
    state.queue.added();
    Ok(StatusCode::ACCEPTED)
}

/// Makes a link by which others can see the run. An earlier one is not valid any more.
async fn link(
    State(state): State<PanelState>,
    run: AccessibleRun,
    headers: HeaderMap,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let record = run.record();
    let token = PageToken::new()?;
    state.queue.store().change(&record.id, |record| record.link = Some(token.digest()))?;
    state.queue.changed();
    // It is one of the page's names.
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    let (scheme, id) = (state.scheme, record.id.as_str());
    let url = format!("{scheme}://{host}/?run={id}&r={}", token.as_str());
    Ok((StatusCode::CREATED, Json(json!({ "url": url }))))
}

/// Makes the link to the run invalid.
async fn unlink(State(state): State<PanelState>, run: AccessibleRun) -> ApiResult<StatusCode> {
    let record = run.record();
    state.queue.store().change(&record.id, |record| record.link = None)?;
    state.queue.changed();
    Ok(StatusCode::NO_CONTENT)
}

async fn file(
    State(state): State<PanelState>,
    run: AccessibleRun,
    Path((_, name)): Path<(String, String)>,
) -> ApiResult<Response> {
    let record = run.record();
    let path = state.queue.store().directory_of(&record.id).file(&name);
    let path = path.ok_or_else(ApiError::no_file)?;
    let file = File::open(path).await?;
    let kind = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => "text/csv; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    let saved_as = format!("attachment; filename=\"{}-{name}\"", record.id.as_str());
    Ok(([(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, &saved_as)], pieces(file)).into_response())
}

/// A file as a body that is read while it is sent.
fn pieces(file: File) -> Body {
    Body::from_stream(unfold(file, async |mut file| {
        let mut piece = vec![0; PIECE_LEN];
        match file.read(&mut piece).await {
            Ok(0) => None,
            Ok(length) => {
                piece.truncate(length);
                Some((Ok(piece), file))
            }
            Err(error) => Some((Err(error), file)),
        }
    }))
}
