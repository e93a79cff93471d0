//! What happens to open streams when a client or a server stops.

use std::pin::Pin;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::info;

/// How long open streams may run after a stop. It bounds the time until the process stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(10);

/// A future on the heap.
pub(crate) type BoxedFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Waits for streams to finish for a while, then ends them.
pub(crate) async fn drain<T: 'static>(mut streams: JoinSet<T>) {
    let all_end = async { while streams.join_next().await.is_some() {} };
    if timeout(DRAIN_TIMEOUT, all_end).await.is_err() {
        info!(streams = streams.len(), "streams ended by the stop");
        streams.shutdown().await;
    }
}
