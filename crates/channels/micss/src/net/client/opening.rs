//! Opens a stream over connections of a pool, or tells a SOCKS5 client why it does not open.

use std::time::Duration;

use random::RandomSource;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use crate::config::Integrity;
use crate::net::client::pool::{ConnectionPool, ConnectionSet};
use crate::net::stream::driver::StreamDriver;
use crate::net::stream::retained_memory::KEPT;
use crate::protocol::memory::MemoryLease;
use crate::protocol::on_lost_channel::LostChannelAction;
use crate::protocol::open_request::OpenRequest;
use crate::protocol::socks;
use crate::protocol::stream::{LostChannelTimeouts, StreamEndpoint, StreamRequest};
use crate::protocol::target::ServiceRefusal;
use crate::{StreamError, StreamProtocolError};

/// Requests a stream over a set of connections of the pool. With `waits_for_answer`, the
/// application is connected only once the stream is open.
pub(crate) fn open(
    pool: &ConnectionPool,
    set: ConnectionSet,
    integrity: Integrity,
    rng: RandomSource,
    request: &OpenRequest,
    waits_for_answer: bool,
) -> Result<StreamDriver, StreamError> {
    let ConnectionSet { connections, cookies, .. } = set;
    let request = StreamRequest {
        threshold: pool.threshold(),
        cookies: &cookies,
        target: &request.encode(),
        has_records: integrity == Integrity::TamperCode,
        is_reusable: pool.reuses_connections(),
        waits_for_answer,
    };
    let policy = pool.policy();
    let opening = match policy.new_streams {
        LostChannelAction::Fail => Duration::ZERO,
        LostChannelAction::Wait => policy.timeout,
    };
    let lost_channel = LostChannelTimeouts { open: policy.timeout, opening };
    let clock = pool.clock();
    let stream = StreamEndpoint::client(&request, lost_channel, rng.generator()?, clock.now());
    let stream = stream.map_err(|failure| StreamError::of(failure, |channel| channel, None))?;
    let mut driver = StreamDriver::new(stream, connections.into_iter().map(Some).collect(), clock);
    driver.limit_memory(MemoryLease::default(), MemoryLease::default(), KEPT.lease());
    driver.set_connector(pool.connect());
    Ok(driver)
}

/// Replies to a SOCKS5 client that its stream does not open.
pub(super) async fn reject(mut application: TcpStream, error: StreamError) -> StreamError {
    let refusal = match &error {
        StreamError::Protocol(StreamProtocolError::Refused(refusal)) => *refusal,
        _ => ServiceRefusal::Unreachable,
    };
    // The outcome is the same whether the reply arrives or not.
    let _ = application.write_all(&socks::reply(Err(refusal))).await;
    error
}
