//! The timeouts and intervals of the handshake.

use std::time::Duration;

/// The timeout of a handshake, at either end.
pub const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The interval at which a client repeats a datagram that is not answered.
pub const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// The number of Hellos, and of Lists, that a server handles on a channel in a second. A Hello
/// takes less than a microsecond, a List up to 2.5.
pub const ANSWERS_PER_SECOND: u32 = 10_000;

/// How long a client waits for further channels once enough have answered: when it starts, and when
/// it extends an association, which continues meanwhile.
pub(super) const START_COLLECT_TIMEOUT: Duration = Duration::from_secs(1);
pub(super) const EXTEND_COLLECT_TIMEOUT: Duration = Duration::from_millis(300);

/// The interval at which a client that has an association sends Hello on the missing channels.
pub(super) const MISSING_POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How long it does so with the same nonces. It leaves time for the rest of the handshake.
pub(super) const MISSING_POLL_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a client that does not need all channels waits for all Confirms before it tries others.
pub(super) const CONFIRM_TIMEOUT: Duration = Duration::from_secs(3);
