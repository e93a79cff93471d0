//! What a stream does when it continues without a channel.

use std::time::Duration;

use super::{StreamEndpoint, StreamPhase, StreamProtocolError, StreamProtocolEvent};
use crate::protocol::incoming::ChannelLossReason;

impl StreamEndpoint {
    /// Continues without a channel in both directions, if possible.
    pub(super) fn lose(&mut self, channel: usize, why: ChannelLossReason) -> bool {
        // Both directions need equally many channels, and have lost the same ones.
        let is_possible = self.incoming.lose(channel, why);
        self.take_losses();
        is_possible
    }

    /// Continues without a channel that has not brought its Confirm, if possible.
    pub(super) fn lose_or_fail(&mut self, channel: usize, why: ChannelLossReason, now: Duration) {
        if self.lose(channel, why) {
            return;
        }
        let StreamPhase::Confirming(confirming) = &mut self.phase else { return };
        let reason = confirming.reject(channel, now);
        self.fail(
            reason.map_or(StreamProtocolError::NotOpened, StreamProtocolError::from).into(),
            now,
        );
    }

    /// Reports the channels that the incoming direction has lost, and drops them in the outgoing
    /// one.
    pub(super) fn take_losses(&mut self) {
        while let Some((channel, why)) = self.incoming.poll_lost() {
            self.outgoing.lose(channel);
            self.rejoining.lost(channel, why);
            if let StreamPhase::Confirming(confirming) = &mut self.phase {
                confirming.exclude(channel);
            }
            self.events.push_back(StreamProtocolEvent::Lost(channel, why));
        }
    }
}
