//! The kernel's information about a TCP connection.

// For the system call `getsockopt`, as no library reads these options.
#![allow(unsafe_code)]

use std::os::fd::RawFd;
use std::time::Duration;

use libc::{IPPROTO_TCP, TCP_INFO, c_int, socklen_t};

use crate::stream::PathStatistics;

/// Longer than the kernel's `struct tcp_info`.
const LEN: usize = 512;

/// The kernel's information.
#[derive(Clone, Debug)]
pub(super) struct TcpInfo {
    /// The time since something arrived from the peer.
    pub(super) last_heard: Duration,
    /// Whether the peer has not acknowledged a retransmission, or does not answer window probes.
    pub(super) is_unanswered: bool,
    statistics: PathStatistics,
}

impl TcpInfo {
    /// The information about a socket; `None` if it is not a TCP socket.
    pub(super) fn of(socket: RawFd) -> Option<Self> {
        let mut bytes = [0; LEN];
        let len = option(socket, IPPROTO_TCP, TCP_INFO, &mut bytes)?;
        Self::parse(&bytes[..len])
    }

    /// Reads `struct tcp_info` of `linux/tcp.h`. An older kernel writes fewer fields.
    fn parse(info: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_ne_bytes(*info.get(at..)?.first_chunk()?));
        let long = |at: usize| Some(u64::from_ne_bytes(*info.get(at..)?.first_chunk()?));
        let ms = |at| word(at).map(|ms| Duration::from_millis(ms.into()));
        let (retransmits, probes) = (*info.get(2)?, *info.get(3)?);
        let unacked = word(24)?;
        let round_trip = word(68).filter(|micros| *micros > 0);
        let min_round_trip = word(148).filter(|micros| *micros > 0 && *micros < u32::MAX);
        let micros = |micros: u32| Duration::from_micros(micros.into());
        Some(Self {
            last_heard: ms(52)?.min(ms(56)?),
            is_unanswered: (unacked > 0 && retransmits > 0) || probes > 0,
            statistics: PathStatistics {
                round_trip: round_trip.map(micros),
                min_round_trip: min_round_trip.map(micros),
                packets_sent: word(136).map(u64::from),
                packets_sent_again: word(100).map(u64::from),
                delivery_rate: long(160).filter(|rate| *rate > 0),
                ..PathStatistics::default()
            },
        })
    }

    pub(super) fn into_statistics(self) -> PathStatistics {
        self.statistics
    }
}

/// The option level of Multipath TCP, its information option, and the flag in it for a fallback to
/// TCP (`linux/mptcp.h`).
const SOL_MPTCP: c_int = 284;
const MPTCP_INFO: c_int = 1;
const FLAG_FALLBACK: u32 = 1;

/// Whether a connected socket uses Multipath TCP, and the peer's system supports it.
pub(super) fn is_multipath(socket: RawFd) -> bool {
    let mut bytes = [0; LEN];
    let Some(len) = option(socket, SOL_MPTCP, MPTCP_INFO, &mut bytes) else { return false };
    let flags = bytes[..len].get(8..).and_then(|bytes| bytes.first_chunk());
    flags.is_some_and(|flags| u32::from_ne_bytes(*flags) & FLAG_FALLBACK == 0)
}

/// Reads a socket option. Returns its length.
fn option(socket: RawFd, level: c_int, name: c_int, value: &mut [u8; LEN]) -> Option<usize> {
    let mut len = socklen_t::try_from(LEN).ok()?;
    // SAFETY: the kernel writes at most `len` bytes, which is the buffer's size, whatever the
    // descriptor is.
    let result =
        unsafe { libc::getsockopt(socket, level, name, value.as_mut_ptr().cast(), &raw mut len) };
    (result == 0).then(|| (len as usize).min(LEN))
}
