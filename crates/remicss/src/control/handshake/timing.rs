//! The timeouts and intervals of the handshake.

use std::time::Duration;

/// How long a handshake may take, at either end.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// How long a client waits for an answer before it sends again.
pub const REPEAT: Duration = Duration::from_millis(250);

/// How many Hellos, and how many Lists, a server looks at on a channel in a second. A Hello takes
/// less than a microsecond, a List up to 2.5.
pub const ANSWERS_PER_SECOND: u32 = 10_000;

/// How long a client waits for further channels once enough answer: when it starts, and when it extends an
/// association that goes on meanwhile.
pub(super) const START_PATIENCE: Duration = Duration::from_secs(1);
pub(super) const EXTEND_PATIENCE: Duration = Duration::from_millis(300);

/// How often a client that has an association asks on the channels that are missing from it.
pub(super) const KNOCK: Duration = Duration::from_millis(500);

/// How long it asks so with the same nonces. It leaves time for the rest of the handshake.
pub(super) const KNOCK_PATIENCE: Duration = Duration::from_secs(5);

/// How long a client that can do without some channels waits for all Confirms, before it tries others.
pub(super) const CONFIRM_PATIENCE: Duration = Duration::from_secs(3);
