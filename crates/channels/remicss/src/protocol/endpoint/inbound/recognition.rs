//! Whether a datagram shows that it is from this end's peer, before anything else is done with it.

use super::{EndpointHandshake, InboundEndpoint};
use crate::protocol::wire::datagram::DatagramClass;

impl InboundEndpoint {
    /// Whether a datagram has a right token under the keys of an association, or at a server the
    /// right proof under the client's key. A replayed datagram has, too. Nothing changes but tokens
    /// that are prepared.
    pub fn recognises(&mut self, channel: usize, bytes: &[u8]) -> bool {
        match DatagramClass::of(bytes) {
            Some(DatagramClass::Share) => {
                let next = self.next.as_mut().map(|next| &mut next.receiver);
                let previous = self.previous.as_mut().map(|(previous, _)| previous);
                let mut receivers = self.current.as_mut().into_iter().chain(next).chain(previous);
                receivers.any(|receiver| receiver.has_valid_token(channel, bytes))
            }
            Some(DatagramClass::Path) => {
                self.paths.as_ref().is_some_and(|paths| paths.recognises(channel, bytes))
            }
            Some(DatagramClass::Handshake) => match &self.handshake {
                EndpointHandshake::Client(_) => false,
                EndpointHandshake::Server(server) => server.recognises(channel, bytes),
            },
            None => false,
        }
    }
}
