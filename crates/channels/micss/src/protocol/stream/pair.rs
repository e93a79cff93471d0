//! Both ends of a stream over three channels without a network, for tests.

use std::time::Duration;

use association::{
    AssociationMessage, AssociationProtocol, AssociationTerms, ConnectionCookie, CookieList,
    SharingScheme,
};
use random::RandomGenerator;

use crate::protocol::options::OPTION_REJOIN;

use super::{LostChannelTimeouts, StreamEndpoint, StreamProtocolEvent, StreamRequest};

const CHANNELS: u8 = 3;

/// The time for which either end waits for a lost channel.
pub(crate) const LOST_CHANNEL: LostChannelTimeouts =
    LostChannelTimeouts { open: Duration::from_secs(90), opening: Duration::from_secs(1) };

/// The list of a stream that needs `threshold` channels.
pub(crate) fn list(threshold: u8) -> CookieList {
    let is_whole = threshold == CHANNELS;
    let scheme = if is_whole { SharingScheme::Xor } else { SharingScheme::Shamir };
    let terms = AssociationTerms::new(
        AssociationProtocol::MicssStream,
        scheme,
        threshold,
        CHANNELS,
        OPTION_REJOIN,
    )
    .unwrap();
    CookieList::new(terms, [1, 2, 3].map(|byte| ConnectionCookie::new([byte; 16])).to_vec())
        .unwrap()
}

/// A client's end of a stream that needs `threshold` channels. It waits for the server's answer.
pub(crate) fn client(threshold: u8) -> StreamEndpoint {
    let list = list(threshold);
    let request = StreamRequest {
        threshold,
        cookies: list.cookies(),
        target: b"service",
        has_records: true,
        is_reusable: true,
        waits_for_answer: true,
    };
    StreamEndpoint::client(&request, LOST_CHANNEL, RandomGenerator::system(), Duration::ZERO)
        .unwrap()
}

/// The server's end, which has received what the client has sent, except for a change of what
/// follows the list on the first channel.
pub(crate) fn server(
    client: &mut StreamEndpoint,
    threshold: u8,
    change: impl Fn(&mut [u8]),
) -> StreamEndpoint {
    let list = list(threshold);
    let list_len = AssociationMessage::List(list.clone()).encode().len();
    let mut shares: Vec<_> =
        client.channels().map(|channel| sent(client, channel).split_off(list_len)).collect();
    change(&mut shares[0]);
    let channels = shares.iter().map(|share| &share[..]).enumerate();
    StreamEndpoint::server(
        list,
        channels,
        LOST_CHANNEL.open,
        RandomGenerator::system(),
        Duration::ZERO,
    )
    .unwrap()
}

/// Both ends of an open stream.
pub(crate) fn open(threshold: u8) -> (StreamEndpoint, StreamEndpoint) {
    let mut client = client(threshold);
    let mut server = server(&mut client, threshold, |_| ());
    server.accept(Duration::ZERO);
    let opened = Duration::from_millis(2);
    server.handle_timeout(opened, |_| Duration::ZERO);
    transfer(&mut server, &mut client, opened);
    client.connect_application(opened);
    let _ = (events(&mut client), events(&mut server));
    (client, server)
}

/// All bytes that an end has to send on a channel.
fn sent(stream: &mut StreamEndpoint, channel: usize) -> Vec<u8> {
    let bytes = stream.to_send(channel).to_vec();
    stream.handle_sent(channel, bytes.len(), Duration::ZERO);
    bytes
}

/// Brings what an end has to send to the other, as far as that takes it.
pub(crate) fn transfer(from: &mut StreamEndpoint, to: &mut StreamEndpoint, now: Duration) {
    let mut rests: Vec<_> = from.channels().map(|channel| sent(from, channel)).collect();
    while let Some(channel) = to.wanted().into_iter().find(|&channel| !rests[channel].is_empty()) {
        let (space, rest) = (to.space(channel), &mut rests[channel]);
        let len = rest.len().min(space.len());
        space[..len].copy_from_slice(&rest[..len]);
        rest.drain(..len);
        to.handle_received(channel, len, now);
    }
}

/// The events of an end so far.
pub(crate) fn events(stream: &mut StreamEndpoint) -> Vec<StreamProtocolEvent> {
    std::iter::from_fn(|| stream.poll_event()).collect()
}
