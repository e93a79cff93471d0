//! What a server of a group gets from others: headers, entries of the log, messages of a refresh
//! and starts have one encoding each, and a server that waits to be invited takes none of them.
#![no_main]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use keys::{RsaPublicKey, SecretKey};
use libfuzzer_sys::fuzz_target;
use quorum::group::Header;
use quorum::links::Topic;
use quorum::refresh::{Delays, Entry, Message};
use quorum::server::{Saved, Server, Settings, Start, Timeouts};

fn server() -> Server {
    let second = Duration::from_secs(1);
    let settings = Settings {
        identity: Arc::new(SecretKey::new(&[1; 32])),
        // N = 2^1024 - 1: nobody has its private key.
        public: RsaPublicKey::danger_of_any_size(&[0xff; 128]).expect("a key"),
        rules: Vec::new(),
        delays: Delays { need: second, grace: second, resend: second },
        timeouts: Timeouts { sign: second, again: second },
    };
    Server::new(settings, Saved::default(), HashSet::new(), Duration::ZERO).expect("nothing saved")
}

fuzz_target!(|bytes: &[u8]| {
    if let Ok(header) = Header::parse(bytes) {
        assert_eq!(header.to_bytes(), bytes);
    }
    if let Ok(entry) = Entry::parse(bytes) {
        assert_eq!(entry.to_bytes(), bytes);
    }
    if let Ok(message) = Message::parse(bytes) {
        assert_eq!(&message.to_bytes()[..], bytes);
    }
    if let Ok(start) = Start::parse(bytes) {
        assert_eq!(start.to_bytes(), bytes);
    }
    let mut server = server();
    let other = SecretKey::new(&[2; 32]).public();
    for topic in Topic::ALL {
        server.handle_message(Duration::ZERO, &other, topic, bytes);
    }
    assert_eq!(server.status().epoch, None);
});
