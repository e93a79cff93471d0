//! Proof that a visitor may see a run: a handler gets a run from nowhere else. A run of somebody
//! else is answered as one that does not exist.

use std::collections::BTreeMap;
use std::convert::Infallible;

use axum::extract::{FromRequestParts, Path};
use axum::http::request::Parts;

use crate::error::{ApiError, ApiResult};
use crate::panel_state::PanelState;
use crate::run::{RunName, RunRecord};
use crate::visitor::PageVisitor;

/// The run that a path names, which the visitor may see.
pub(crate) struct AccessibleRun(RunRecord);

impl AccessibleRun {
    /// The run.
    pub(crate) fn record(self) -> RunRecord {
        self.0
    }
}

impl FromRequestParts<PanelState> for AccessibleRun {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &PanelState) -> ApiResult<Self> {
        let names = Path::<BTreeMap<String, String>>::from_request_parts(parts, state).await;
        let id = names.ok().and_then(|Path(mut names)| names.remove("id"));
        let name = id.and_then(|id| RunName::try_from(id).ok()).ok_or_else(ApiError::no_run)?;
        let visitor = visitor(parts);
        let run = state.queue().store().get(&name).cloned();
        run.filter(|run| visitor.may_see(run)).map(Self).ok_or_else(ApiError::no_run)
    }
}

/// The visitor, for lists of runs.
pub(crate) struct RunVisitor(pub(crate) PageVisitor);

impl FromRequestParts<PanelState> for RunVisitor {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &PanelState) -> Result<Self, Infallible> {
        Ok(Self(visitor(parts)))
    }
}

/// Who asks, as the guard has found out.
fn visitor(parts: &Parts) -> PageVisitor {
    parts.extensions.get().cloned().unwrap_or(PageVisitor::Stranger)
}
