//! Reports the states of a stream's paths to its protocol.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::sync::watch;

use crate::net::paths::path::MonitoredPath;
use crate::protocol::stream::StreamEndpoint;

/// The monitored paths of a stream's channels.
#[derive(Default)]
pub(super) struct StreamPaths {
    /// With the channels' indices.
    paths: Vec<(usize, Arc<MonitoredPath>)>,
    /// Waits for the next change of any path.
    change: Option<Pin<Box<dyn Future<Output = watch::Receiver<()>> + Send>>>,
}

impl StreamPaths {
    /// Adds the path of a channel, or replaces it.
    pub(super) fn add(&mut self, channel: usize, path: &Arc<MonitoredPath>) {
        self.paths.retain(|(known, _)| *known != channel);
        self.paths.push((channel, Arc::clone(path)));
        if self.change.is_none() {
            let mut changes = path.events.changes();
            // Reports the current states at once.
            changes.mark_changed();
            self.change = Some(next_change(changes));
        }
    }

    /// The path of a channel.
    pub(super) fn path(&self, channel: usize) -> Option<&Arc<MonitoredPath>> {
        self.paths.iter().find(|(known, _)| *known == channel).map(|(_, path)| path)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &MonitoredPath> {
        self.paths.iter().map(|(_, path)| &**path)
    }

    /// Reports the states to the stream if any has changed.
    pub(super) fn poll_changes(
        &mut self,
        context: &mut Context<'_>,
        stream: &mut StreamEndpoint,
        now: Duration,
    ) {
        let mut has_changed = false;
        while let Some(change) = &mut self.change
            && let Poll::Ready(changes) = change.as_mut().poll(context)
        {
            self.change = Some(next_change(changes));
            has_changed = true;
        }
        if has_changed {
            for (channel, path) in &self.paths {
                stream.handle_path(*channel, path.state().unusable_since(), now);
            }
        }
    }
}

fn next_change(
    mut changes: watch::Receiver<()>,
) -> Pin<Box<dyn Future<Output = watch::Receiver<()>> + Send>> {
    Box::pin(async move {
        // The sender of the changes exists as long as the paths.
        _ = changes.changed().await;
        changes
    })
}
