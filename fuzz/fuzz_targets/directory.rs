//! The messages of both ends of the directory's exchange: a message that parses has one encoding,
//! and no invented message is accepted.
#![no_main]

use keys::SharedKey;
use libfuzzer_sys::fuzz_target;
use directory::DirectoryRequester;
use directory::credentials::Credential;
use directory::message::{Ask, Nonce, Reply};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ask) = Ask::parse(bytes) {
        assert_eq!(ask.encode(), bytes);
    }
    if let Ok(reply) = Reply::parse(bytes) {
        assert_eq!(reply.encode(), bytes);
    }
    let credential = Credential::Shared(SharedKey::new(&[0x5A; 32]));
    let asker = DirectoryRequester::new([192, 0, 2, 1].into(), Nonce::new([0xA5; 32]), &credential);
    assert!(asker.hear(bytes).is_err());
});
