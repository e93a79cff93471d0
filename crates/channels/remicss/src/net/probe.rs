//! Measures the channels to a server that runs.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use keys::SharedKey;
use random::RandomGenerator;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use udp::DatagramReceiveBuffer;

use super::server_names::look_up_server;
use super::{bind, sender_config};
use crate::config::TunnelConfig;
use crate::net::error::TunnelError;
use crate::protocol::control::hello_probe::{HelloProbe, MeasuredChannel};

/// The maximum number of reads of a channel before Hellos are sent again: others may send to it
/// without end.
const MAX_READS: usize = 16;

/// Measures the channels of a client's configuration for about seven seconds, without an
/// association: a tunnel between the same ends goes on meanwhile. `key` is the one shared with the
/// server, if there is one.
///
/// # Errors
/// If the name of a server cannot be looked up, a channel's address or device cannot be used, or
/// the random source fails.
pub fn measure_channels(
    config: &TunnelConfig,
    key: Option<SharedKey>,
) -> Result<Vec<MeasuredChannel>, TunnelError> {
    let mut config = config.clone();
    for (index, channel) in config.channels.iter_mut().enumerate() {
        let found = look_up_server(channel);
        found.map_err(|source| TunnelError::ServerName { number: index + 1, source })?;
    }
    let sockets = bind(&config)?;
    for socket in &sockets {
        // Without them, the rate of fast channels is less exact.
        let _ = socket.enable_timestamps();
    }
    let began = Instant::now();
    let headers = sender_config(&config).headers;
    let mut probe = HelloProbe::new(key, &headers, RandomGenerator::seeded()?, Duration::ZERO);
    let mut buffer = DatagramReceiveBuffer::new();
    while !probe.is_over(began.elapsed()) {
        for (channel, hello) in probe.poll_transmit(began.elapsed())? {
            if let Some(server) = config.channels[channel].peer {
                sockets[channel].send_one(&hello, server);
            }
        }
        let wait = probe.poll_timeout().saturating_sub(began.elapsed());
        let seconds = i64::try_from(wait.as_secs()).unwrap_or(1);
        let wait = Timespec { tv_sec: seconds, tv_nsec: i64::from(wait.subsec_nanos()) };
        let ready = sockets.iter();
        let ready = ready.map(|it| PollFd::from_borrowed_fd(it.as_fd(), PollFlags::IN));
        let mut ready: Vec<PollFd<'_>> = ready.collect();
        // After an interruption the sockets are read, too.
        let _ = poll(&mut ready, Some(&wait));
        for (channel, socket) in sockets.iter().enumerate() {
            for _ in 0..MAX_READS {
                let Ok(more) = buffer.receive(socket) else { break };
                for (from, datagram, age) in buffer.arrivals() {
                    if Some(from) == config.channels[channel].peer {
                        let at = began.elapsed().saturating_sub(age);
                        probe.handle_datagram(channel, datagram, at);
                    }
                }
                if !more {
                    break;
                }
            }
        }
    }
    Ok(probe.measured())
}
