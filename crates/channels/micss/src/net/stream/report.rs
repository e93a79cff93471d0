//! Counts and logs how a stream ended.

use std::fmt::Display;

use tracing::{debug, info, warn};

use crate::StreamError;
use crate::net::metrics::{LimitedLogEvent, StreamMetrics};
use crate::net::stream::driver::ReusableConnection;

/// Logs and counts how a stream ended. Returns its connections if they can be reused.
pub(crate) fn log_end(
    stream_metrics: &StreamMetrics,
    target: &impl Display,
    result: Result<Vec<ReusableConnection>, StreamError>,
) -> Vec<ReusableConnection> {
    stream_metrics.end(result.as_ref().err());
    match result {
        Ok(finished) => {
            debug!(%target, "stream finished");
            return finished;
        }
        Err(error) if error.is_tampering() => {
            if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::Tampered) {
                warn!(%target, %error, occurrences, "TAMPERING: stream aborted");
            }
        }
        Err(error) => {
            if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::Broken) {
                info!(%target, %error, occurrences, "stream aborted");
            }
        }
    }
    Vec::new()
}
