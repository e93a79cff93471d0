//! The protocol of agents without the program: what a peer can send.

use std::time::Duration;

use keys::IdentitySecretKey;
use transport::{
    Connection, ConnectionOptions, ConnectionSecurity, Error, MessageStream, TransportChoice,
    connect,
};

use super::emulation::until;
use super::testbed::SiteTestbed;

/// The options of a party for connections with another one.
pub(crate) fn options(testbed: &SiteTestbed, party: &str, peer: &str) -> ConnectionOptions {
    let identity = IdentitySecretKey::read(&testbed.path(&format!("{party}.key"))).unwrap();
    let security = ConnectionSecurity::pinned(identity, vec![testbed.key(peer).parse().unwrap()]);
    let timeout = Some(Duration::from_secs(60));
    ConnectionOptions { timeout, ..ConnectionOptions::new(security) }
}

/// A connection to the agent in Frankfurt, with the key of a party.
pub(crate) fn connected(testbed: &SiteTestbed, party: &str) -> Result<Connection, Error> {
    let options = ConnectionOptions {
        transport: TransportChoice::Named("tcp"),
        ..options(testbed, party, "fra")
    };
    testbed.at_controller(|| connect(&testbed.address("fra"), &options))
}

/// The answer to a message; `None` if the agent has ended the connection.
pub(crate) fn answer(messages: &mut MessageStream<Connection>, message: &[u8]) -> Option<Vec<u8>> {
    messages.send(message).ok()?;
    messages.flush().ok()?;
    messages.receive(1 << 20).ok()?
}

/// A hello of a version.
pub(crate) fn hello(version: &str) -> Vec<u8> {
    let length = u8::try_from(version.len()).unwrap();
    [&[0, length], version.as_bytes(), &[4, 10, 0, 0, 1]].concat()
}

/// The version that the agent says it has.
pub(crate) fn version(testbed: &SiteTestbed) -> String {
    let mut messages = MessageStream::new(connected(testbed, "controller").unwrap());
    let answer = answer(&mut messages, &hello("protocol 0, sunder 0.0.1")).unwrap();
    // Refused, because of the version; then a text with its length of four bytes.
    assert_eq!(answer[..2], [1, 0]);
    String::from_utf8(answer[6..].to_vec()).unwrap()
}

/// Waits until the agent welcomes this controller. Returns the connection and the welcome.
pub(crate) fn welcomed(testbed: &SiteTestbed) -> (MessageStream<Connection>, Vec<u8>) {
    let version = version(testbed);
    let mut welcomed = None;
    until("the agent is free", || {
        let mut messages = MessageStream::new(connected(testbed, "controller").unwrap());
        let welcome = answer(&mut messages, &hello(&version)).unwrap();
        let is_welcome = welcome[0] == 0;
        welcomed = is_welcome.then_some((messages, welcome));
        is_welcome
    });
    welcomed.unwrap()
}
