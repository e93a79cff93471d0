//! The messages of both ends of the directory's exchange: a message that parses has one encoding,
//! and no invented message is accepted.
#![no_main]

use directory::DirectoryRequester;
use directory::credentials::DirectoryCredential;
use directory::message::{DirectoryNonce, DirectoryReply, DirectoryRequest};
use keys::SharedKey;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    if let Ok(ask) = DirectoryRequest::parse(bytes) {
        assert_eq!(ask.encode(), bytes);
    }
    if let Ok(reply) = DirectoryReply::parse(bytes) {
        assert_eq!(reply.encode(), bytes);
    }
    let credential = DirectoryCredential::Shared(SharedKey::new(&[0x5A; 32]));
    let asker = DirectoryRequester::new(
        [192, 0, 2, 1].into(),
        DirectoryNonce::new([0xA5; 32]),
        &credential,
    );
    assert!(asker.verify_reply(bytes).is_err());
});
