//! Notices channels whose device was replaced.

use std::time::Duration;

use model::ChannelSubset;
use tracing::{info, warn};
use udp::UdpBatchSocket;

/// How often it is checked whether a channel's device was replaced.
const DEVICE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Binds channels again whose device was replaced. A server without a client sends nothing, so no
/// error would show that it cannot receive.
pub(super) struct DeviceChecks {
    /// The next check; `None` if no channel has a device.
    pub(super) due: Option<Duration>,
    /// The channels that could not be bound again, which was logged.
    failed: ChannelSubset,
}

impl DeviceChecks {
    pub(super) fn new(channels: &[UdpBatchSocket]) -> Self {
        let has_device = channels.iter().any(|channel| channel.device().is_some());
        Self { due: has_device.then_some(Duration::ZERO), failed: ChannelSubset::EMPTY }
    }

    pub(super) fn handle_timeout(&mut self, channels: &[UdpBatchSocket], now: Duration) {
        let Some(due) = self.due.as_mut().filter(|due| **due <= now) else { return };
        *due = now.saturating_add(DEVICE_CHECK_INTERVAL);
        let mut failed = ChannelSubset::EMPTY;
        for (index, channel) in channels.iter().enumerate() {
            let Some(device) = channel.device() else { continue };
            match channel.rebind_device() {
                Ok(false) => {}
                Ok(true) => {
                    info!(
                        "channel {}: {device} was replaced by another device, which is used now",
                        index + 1
                    );
                }
                Err(error) => {
                    failed = failed.with(index);
                    if !self.failed.contains(index) {
                        let number = index + 1;
                        warn!(
                            "channel {number}: cannot use the new {device}: {error}; trying again"
                        );
                    }
                }
            }
        }
        self.failed = failed;
    }
}
