//! What the page asks for.

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::SystemTime;

use axum::Json;
use axum::extract::rejection::JsonRejection;
use axum::extract::{Path, Query, State};
use axum::http::header::{CONTENT_DISPOSITION, CONTENT_TYPE};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use lab::{Experiment, experiment};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::spawn_blocking;

use crate::document;
use crate::events::events;
use crate::live::LiveProcesses;
use crate::plan::{FrontQuery, PlanQuery, PlanQuestion, SurfaceQuery};
use crate::prediction;
use crate::refusal::RefusedRequest;
use crate::request::RunRequest;
use crate::run::{RunName, RunRecord, RunState};
use crate::runner::RunQueue;
use crate::template::{self, RunTemplate};

/// How many pages may watch runs at a time.
const MAX_VIEWERS: usize = 256;

/// How many plans are computed at a time. Others wait.
const MAX_PLANS: usize = 2;

/// How many runs may wait.
const MAX_QUEUED: usize = 100;

/// The maximum length of a note.
const MAX_NOTE: usize = 4_000;

/// How many runs a list has, by default and at most.
const DEFAULT_LIMIT: usize = 50;
const MAX_LIMIT: usize = 500;

/// What all requests share.
#[derive(Clone)]
pub(crate) struct PanelState {
    queue: Arc<RunQueue>,
    viewers: Arc<Semaphore>,
    live: Arc<LiveProcesses>,
    /// How many plans are computed at a time.
    plans: Arc<Semaphore>,
}

/// An answer, or a refusal.
type ApiResult<T> = Result<T, ApiError>;

/// Why a request is not answered: a status, a line, and the part of the request that is wrong.
pub(crate) struct ApiError {
    status: StatusCode,
    error: String,
    field: Option<String>,
}

impl PanelState {
    pub(crate) fn new(queue: Arc<RunQueue>) -> Self {
        let places = |number| Arc::new(Semaphore::new(number));
        let (viewers, plans) = (places(MAX_VIEWERS), places(MAX_PLANS));
        Self { queue, viewers, live: Arc::default(), plans }
    }
}

/// The routes of the interface.
pub(crate) fn routes() -> axum::Router<PanelState> {
    axum::Router::new()
        .route("/api/templates", get(templates))
        .route("/api/networks", get(async || Json(template::networks())))
        .route("/api/experiments", get(experiments))
        .route("/api/toml", post(toml))
        .route("/api/predict", post(predict))
        .route("/api/plan", post(answer::<PlanQuery>))
        .route("/api/plan/surface", post(answer::<SurfaceQuery>))
        .route("/api/plan/front", post(answer::<FrontQuery>))
        .route("/api/live", get(live))
        .route("/api/queue", get(queue))
        .route("/api/runs", get(list).post(create))
        .route("/api/runs/{id}", get(show).patch(annotate).delete(delete))
        .route("/api/runs/{id}/events", get(watch))
        .route("/api/runs/{id}/stop", post(stop))
        .route("/api/runs/{id}/resume", post(resume))
        .route("/api/runs/{id}/files/{name}", get(file))
}

/// A refusal as a JSON document.
pub(crate) fn refuse(status: StatusCode, error: &str) -> Response {
    ApiError { status, error: error.to_owned(), field: None }.into_response()
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut document = json!({ "error": self.error });
        if let Some(field) = self.field {
            document["field"] = field.into();
        }
        (self.status, Json(document)).into_response()
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

impl From<JsonRejection> for ApiError {
    fn from(rejection: JsonRejection) -> Self {
        Self { status: rejection.status(), error: rejection.body_text(), field: None }
    }
}

impl From<io::Error> for ApiError {
    fn from(error: io::Error) -> Self {
        let (status, error) = match error.kind() {
            ErrorKind::NotFound => (StatusCode::NOT_FOUND, "there is no such file".to_owned()),
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded => {
                (StatusCode::INSUFFICIENT_STORAGE, "the disk is full: delete runs".to_owned())
            }
            _ => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        Self { status, error, field: None }
    }
}

impl ApiError {
    fn new(status: StatusCode, error: impl Into<String>) -> Self {
        Self { status, error: error.into(), field: None }
    }

    fn no_run() -> Self {
        Self::new(StatusCode::NOT_FOUND, "there is no such run")
    }
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

async fn toml(request: Result<Json<RunRequest>, JsonRejection>) -> ApiResult<String> {
    Ok(request?.0.experiment()?.text)
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

async fn live(State(state): State<PanelState>) -> ApiResult<Json<Value>> {
    Ok(Json(state.live.get(state.queue.program()).await?))
}

async fn queue(State(state): State<PanelState>) -> Json<Value> {
    let queued: Vec<RunRecord> = state.queue.store().queued().cloned().collect();
    let running = state.queue.running();
    let record = running.as_ref().and_then(|(name, _)| state.queue.store().get(name).cloned());
    let seconds_left = running.and_then(|(_, seconds)| seconds);
    Json(json!({
        "running": record.map(|record| document::summary(&record, seconds_left)),
        "queued": queued.iter().map(|it| document::summary(it, None)).collect::<Vec<_>>(),
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
    Query(query): Query<ListQuery>,
) -> ApiResult<Json<Value>> {
    let before = query.before.map(RunName::try_from).transpose().map_err(|_| ApiError::no_run())?;
    let limit = query.limit.unwrap_or(DEFAULT_LIMIT).clamp(1, MAX_LIMIT);
    let (runs, total) = state.queue.store().list(before.as_ref(), &query.search, limit);
    let runs: Vec<Value> =
        runs.iter().map(|record| document::summary(record, seconds_left(&state, record))).collect();
    Ok(Json(json!({ "runs": runs, "total": total })))
}

async fn create(
    State(state): State<PanelState>,
    request: Result<Json<RunRequest>, JsonRejection>,
) -> ApiResult<(StatusCode, Json<Value>)> {
    let Json(request) = request?;
    let requested = request.experiment()?;
    if state.queue.store().queued().count() >= MAX_QUEUED {
        let error = format!("{MAX_QUEUED} runs wait already: stop some, or wait");
        return Err(ApiError::new(StatusCode::TOO_MANY_REQUESTS, error));
    }
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
    };
    state.queue.store().add(record, &requested.text)?;
    state.queue.added();
    Ok((StatusCode::CREATED, Json(json!({ "id": id }))))
}

/// The run with this name.
fn find(state: &PanelState, id: String) -> ApiResult<RunRecord> {
    let name = RunName::try_from(id).map_err(|_| ApiError::no_run())?;
    state.queue.store().get(&name).cloned().ok_or_else(ApiError::no_run)
}

/// About how many seconds a run still takes, if it runs and a trial is done.
fn seconds_left(state: &PanelState, record: &RunRecord) -> Option<f64> {
    let (name, seconds) = state.queue.running()?;
    seconds.filter(|_| name == record.id)
}

async fn show(State(state): State<PanelState>, Path(id): Path<String>) -> ApiResult<Json<Value>> {
    let record = find(&state, id)?;
    let directory = state.queue.store().directory_of(&record.id);
    let seconds_left = seconds_left(&state, &record);
    let document = spawn_blocking(move || document::whole(&record, &directory, seconds_left)).await;
    Ok(Json(document.map_err(io::Error::other)??))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Annotation {
    note: String,
}

async fn annotate(
    State(state): State<PanelState>,
    Path(id): Path<String>,
    annotation: Result<Json<Annotation>, JsonRejection>,
) -> ApiResult<StatusCode> {
    let Json(Annotation { note }) = annotation?;
    if note.len() > MAX_NOTE {
        return Err(RefusedRequest::new("note", format!("write at most {MAX_NOTE} bytes")).into());
    }
    let record = find(&state, id)?;
    state.queue.store().change(&record.id, |record| record.note = note)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn delete(State(state): State<PanelState>, Path(id): Path<String>) -> ApiResult<StatusCode> {
    let record = find(&state, id)?;
    if !record.state.is_over() {
        return Err(ApiError::new(StatusCode::CONFLICT, "it waits or runs: stop it first"));
    }
    state.queue.store().remove(&record.id)?;
    Ok(StatusCode::NO_CONTENT)
}

async fn watch(
    State(state): State<PanelState>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> ApiResult<Response> {
    let record = find(&state, id)?;
    let place = Arc::clone(&state.viewers).try_acquire_owned().map_err(|_| {
        let error = format!("{MAX_VIEWERS} pages watch runs already: close some");
        ApiError::new(StatusCode::SERVICE_UNAVAILABLE, error)
    })?;
    // The number of the last event that a browser has got is the place after it.
    let last = headers.get("last-event-id").and_then(|it| it.to_str().ok()?.parse().ok());
    let events = events(Arc::clone(&state.queue), record.id, last.unwrap_or(0), place);
    Ok(Sse::new(events).keep_alive(KeepAlive::default()).into_response())
}

async fn stop(State(state): State<PanelState>, Path(id): Path<String>) -> ApiResult<StatusCode> {
    let record = find(&state, id)?;
    if state.queue.stop(&record.id)? {
        return Ok(StatusCode::ACCEPTED);
    }
    Err(ApiError::new(StatusCode::CONFLICT, "it is over already"))
}

async fn resume(State(state): State<PanelState>, Path(id): Path<String>) -> ApiResult<StatusCode> {
    let record = find(&state, id)?;
    if !record.state.is_over() || record.state == RunState::Finished {
        return Err(ApiError::new(StatusCode::CONFLICT, "nothing of it is left to run"));
    }
    state.queue.store().change(&record.id, |record| {
        record.state = RunState::Queued;
        record.error = None;
    })?;
    state.queue.added();
    Ok(StatusCode::ACCEPTED)
}

async fn file(
    State(state): State<PanelState>,
    Path((id, name)): Path<(String, String)>,
) -> ApiResult<Response> {
    let record = find(&state, id)?;
    let path = state.queue.store().directory_of(&record.id).file(&name);
    let path = path.ok_or_else(|| ApiError::new(StatusCode::NOT_FOUND, "there is no such file"))?;
    let bytes = tokio::fs::read(path).await?;
    let kind = match name.rsplit_once('.').map(|(_, extension)| extension) {
        Some("csv") => "text/csv; charset=utf-8",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain; charset=utf-8",
    };
    let saved_as = format!("attachment; filename=\"{}-{name}\"", record.id.as_str());
    Ok(([(CONTENT_TYPE, kind), (CONTENT_DISPOSITION, &saved_as)], bytes).into_response())
}
