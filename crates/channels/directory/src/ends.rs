//! The two ends of an exchange, without their connection: requester and responder.

use std::net::IpAddr;

use super::addresses::ChannelAddresses;
use super::credentials::{DirectoryCredential, DirectoryServerKeys};
use super::message::{
    DirectoryAnswer, DirectoryMessageError, DirectoryNonce, DirectoryRefusal, DirectoryReply,
    DirectoryRequest,
};

/// A client that sends one request to one peer.
#[derive(Debug)]
pub struct DirectoryRequester<'a> {
    peer: IpAddr,
    ask: DirectoryRequest,
    credential: &'a DirectoryCredential,
}

/// Why a reply is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirectoryAnswerError {
    /// There is no reply.
    #[error("the connection was closed without an answer; try again later")]
    Silent,
    /// The reply is not a message of this protocol.
    #[error(transparent)]
    Message(#[from] DirectoryMessageError),
    /// The server refuses to answer.
    #[error("the server refuses: {0}")]
    Refused(#[from] DirectoryRefusal),
    /// The trusted key does not prove the reply.
    #[error("the answer is not authentic: it was changed on the path, or the peer has another key")]
    Unproven,
    /// The reply is proven, but the peer's address is not among its addresses.
    #[error(
        "the answer is of another peer: {peer} is not among its addresses; if both are the same peer, add it to \
         `addresses` there"
    )]
    AnotherPeer {
        /// The peer that was asked.
        peer: IpAddr,
    },
}

impl DirectoryAnswerError {
    /// Whether someone on the path has changed the reply, or the keys differ. False if there was no
    /// reply, or another service answered.
    pub fn is_tampering(self) -> bool {
        match self {
            Self::Silent
            | Self::Refused(_)
            | Self::Message(DirectoryMessageError::Magic | DirectoryMessageError::Version(_)) => {
                false
            }
            Self::Message(_) | Self::Unproven | Self::AnotherPeer { .. } => true,
        }
    }
}

impl<'a> DirectoryRequester<'a> {
    /// Asks `peer`. `credential` verifies the answer. The nonce must be drawn at random for this
    /// request only.
    pub fn new(peer: IpAddr, nonce: DirectoryNonce, credential: &'a DirectoryCredential) -> Self {
        Self { peer, ask: DirectoryRequest { scheme: credential.scheme(), nonce }, credential }
    }

    /// The bytes to send to the server.
    pub fn request_bytes(&self) -> DirectoryRequest {
        self.ask
    }

    /// Handles all bytes that the server has sent. Returns the peer's addresses.
    ///
    /// # Errors
    /// Unless they are exactly one Tell, proven for this Ask, with the peer's own address in it.
    pub fn verify_reply(self, reply: &[u8]) -> Result<ChannelAddresses, DirectoryAnswerError> {
        if reply.is_empty() {
            return Err(DirectoryAnswerError::Silent);
        }
        let DirectoryAnswer { nonce, addresses, proof } = match DirectoryReply::parse(reply)? {
            DirectoryReply::Tell(answer) => answer,
            DirectoryReply::Refuse(refusal) => return Err(refusal.into()),
        };
        let statement = self.ask.signed_bytes(nonce, &addresses);
        if !self.credential.is_proven(&statement, &proof) {
            return Err(DirectoryAnswerError::Unproven);
        }
        // Several peers may share a key. An answer of one must not count as an answer of another.
        if !addresses.includes_host(self.peer) {
            return Err(DirectoryAnswerError::AnotherPeer { peer: self.peer });
        }
        Ok(addresses)
    }
}

/// A server that sends its addresses to every client.
#[derive(Debug)]
pub struct DirectoryResponder {
    addresses: ChannelAddresses,
    keys: DirectoryServerKeys,
}

impl DirectoryResponder {
    /// Answers with these addresses, proven with these keys.
    pub fn new(addresses: ChannelAddresses, keys: DirectoryServerKeys) -> Self {
        Self { addresses, keys }
    }

    /// The reply to the client that has sent `ask`. The nonce must be drawn at random for this
    /// reply only.
    ///
    /// # Errors
    /// When it is not exactly one Ask. Then nothing is sent.
    pub fn answer(
        &self,
        ask: &[u8],
        nonce: DirectoryNonce,
    ) -> Result<DirectoryReply, DirectoryMessageError> {
        let ask = DirectoryRequest::parse(ask)?;
        let statement = ask.signed_bytes(nonce, &self.addresses);
        Ok(match self.keys.prove(ask.scheme, &statement) {
            Some(proof) => DirectoryReply::Tell(DirectoryAnswer {
                nonce,
                addresses: self.addresses.clone(),
                proof,
            }),
            None => DirectoryReply::Refuse(DirectoryRefusal::SchemeNotOffered),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::addresses::tests::{list, lists};
    use super::super::message::{MAX_REPLY_LEN, ProofScheme};
    use super::*;
    use keys::{IdentitySecretKey, SharedKey};
    use proptest::prelude::*;

    const PEER: &str = "192.0.2.1";

    fn keys(byte: u8) -> DirectoryServerKeys {
        let shared = Some(SharedKey::new(&[byte; 32]));
        DirectoryServerKeys { shared, secret: Some(IdentitySecretKey::new(&[byte; 32])) }
    }

    fn credentials(byte: u8) -> [DirectoryCredential; 2] {
        let public = IdentitySecretKey::new(&[byte; 32]).public();
        [
            DirectoryCredential::Shared(SharedKey::new(&[byte; 32])),
            DirectoryCredential::Public(public),
        ]
    }

    fn requester(credential: &DirectoryCredential, nonce: u8) -> DirectoryRequester<'_> {
        DirectoryRequester::new(PEER.parse().unwrap(), DirectoryNonce::new([nonce; 32]), credential)
    }

    fn reply_bytes(responder: &DirectoryResponder, ask: DirectoryRequest) -> Vec<u8> {
        responder.answer(&ask.encode(), DirectoryNonce::new([0x55; 32])).unwrap().encode()
    }

    #[test]
    fn an_answer_with_the_right_key_is_accepted() {
        let addresses = list("192.0.2.1:6522 [2001:db8::2]:80");
        let responder = DirectoryResponder::new(addresses.clone(), keys(1));
        for credential in &credentials(1) {
            let requester = requester(credential, 9);
            let reply = reply_bytes(&responder, requester.request_bytes());
            assert_eq!(requester.verify_reply(&reply), Ok(addresses.clone()));
        }
    }

    #[test]
    fn an_answer_with_another_key_is_rejected() {
        let responder = DirectoryResponder::new(list("192.0.2.1:6522"), keys(1));
        for credential in &credentials(2) {
            let requester = requester(credential, 9);
            let reply = reply_bytes(&responder, requester.request_bytes());
            assert_eq!(requester.verify_reply(&reply), Err(DirectoryAnswerError::Unproven));
        }
    }

    #[test]
    fn a_proof_of_the_other_scheme_is_rejected() {
        let responder = DirectoryResponder::new(list("192.0.2.1:6522"), keys(1));
        let [shared, public] = &credentials(1);
        for (asked, heard) in [(shared, public), (public, shared)] {
            let reply = reply_bytes(&responder, requester(asked, 9).request_bytes());
            assert_eq!(
                requester(heard, 9).verify_reply(&reply),
                Err(DirectoryAnswerError::Unproven)
            );
        }
    }

    #[test]
    fn a_replay_of_an_older_answer_is_rejected() {
        let responder = DirectoryResponder::new(list("192.0.2.1:6522"), keys(1));
        for credential in &credentials(1) {
            let older = reply_bytes(&responder, requester(credential, 8).request_bytes());
            assert_eq!(
                requester(credential, 9).verify_reply(&older),
                Err(DirectoryAnswerError::Unproven)
            );
        }
    }

    #[test]
    fn an_answer_of_another_peer_is_rejected() {
        let responder = DirectoryResponder::new(list("192.0.2.2:6522 192.0.2.3:6522"), keys(1));
        for credential in &credentials(1) {
            let requester = requester(credential, 9);
            let reply = reply_bytes(&responder, requester.request_bytes());
            let error = requester.verify_reply(&reply).unwrap_err();
            assert_eq!(error, DirectoryAnswerError::AnotherPeer { peer: PEER.parse().unwrap() });
            assert!(error.is_tampering());
        }
    }

    #[test]
    fn a_server_without_the_key_says_so() {
        let [shared, public] = &credentials(1);
        let mut only_secret = keys(1);
        only_secret.shared = None;
        let mut only_shared = keys(1);
        only_shared.secret = None;
        for (credential, keys) in [(shared, only_secret), (public, only_shared)] {
            let responder = DirectoryResponder::new(list("192.0.2.1:6522"), keys);
            let requester = requester(credential, 9);
            let reply = reply_bytes(&responder, requester.request_bytes());
            let error = requester.verify_reply(&reply).unwrap_err();
            assert_eq!(error, DirectoryAnswerError::Refused(DirectoryRefusal::SchemeNotOffered));
            assert!(!error.is_tampering());
        }
    }

    #[test]
    fn an_invalid_request_is_not_answered() {
        let responder = DirectoryResponder::new(list("192.0.2.1:6522"), keys(1));
        let nonce = DirectoryNonce::new([0; 32]);
        let ask = requester(&credentials(1)[0], 9).request_bytes().encode();
        for wrong in [&[][..], &ask[1..], &[&ask[..], &[0]].concat(), b"GET / HTTP/1.1\r\n\r\n"] {
            assert!(responder.answer(wrong, nonce).is_err(), "{wrong:?}");
        }
        let silent = requester(&credentials(1)[0], 9).verify_reply(&[]).unwrap_err();
        assert_eq!(silent, DirectoryAnswerError::Silent);
        let strange =
            requester(&credentials(1)[0], 9).verify_reply(b"HTTP/1.1 400 Bad Request").unwrap_err();
        assert!(!silent.is_tampering() && !strange.is_tampering(), "{strange}");
    }

    /// Every value of every byte of a Tell: a changed Tell is rejected.
    #[test]
    fn a_changed_answer_is_rejected() {
        let responder = DirectoryResponder::new(list("192.0.2.1:6522 [2001:db8::2]:80"), keys(1));
        let [shared, public] = &credentials(1);
        // The check of a code takes less than a microsecond, that of a signature more.
        for (credential, values) in [(shared, 1..=255), (public, 1..=16)] {
            let reply = reply_bytes(&responder, requester(credential, 9).request_bytes());
            for place in 0..reply.len() {
                for change in values.clone() {
                    let mut changed = reply.clone();
                    changed[place] ^= change;
                    assert!(
                        requester(credential, 9).verify_reply(&changed).is_err(),
                        "byte {place}"
                    );
                }
            }
        }
    }

    /// A Tell made by another implementation of HMAC, Python's `hmac`, over the documented bytes.
    #[test]
    fn a_tell_is_as_documented() {
        let credential = DirectoryCredential::Shared(SharedKey::new(&[0x42; 32]));
        let reply = [
            &b"SNDD\x01\x02\x01"[..],
            &[0x55; 32],
            b"\x02\x04\xc0\x00\x02\x01\x19\x7a\x04\xc6\x33\x64\x0a\x19\x7a",
            &KNOWN_CODE,
        ];
        let addresses = requester(&credential, 9).verify_reply(&reply.concat()).unwrap();
        assert_eq!(addresses, list("192.0.2.1:6522 198.51.100.10:6522"));
    }

    const KNOWN_CODE: [u8; 32] = [
        0xd2, 0xf1, 0x71, 0x43, 0x95, 0x90, 0x4b, 0x26, 0x1b, 0x2f, 0xb4, 0x34, 0xb0, 0x29, 0x38,
        0x94, 0xb2, 0xba, 0x40, 0x57, 0x85, 0x73, 0x17, 0xb6, 0xeb, 0xcb, 0xa5, 0x6c, 0x74, 0xb3,
        0xc8, 0xf6,
    ];

    proptest! {
        #[test]
        fn any_proven_list_is_accepted_unchanged(addresses in lists(), nonce: u8, signed: bool) {
            let responder = DirectoryResponder::new(addresses.clone(), keys(1));
            let credential = &credentials(1)[usize::from(signed)];
            let peer = addresses.as_slice()[0].ip();
            let requester = DirectoryRequester::new(peer, DirectoryNonce::new([nonce; 32]), credential);
            let reply = reply_bytes(&responder, requester.request_bytes());
            prop_assert!(reply.len() <= MAX_REPLY_LEN);
            prop_assert_eq!(requester.verify_reply(&reply), Ok(addresses));
        }

        #[test]
        fn arbitrary_bytes_are_rejected(
            scheme in prop_oneof![Just(ProofScheme::Hmac), Just(ProofScheme::Ed25519)],
            rest in proptest::collection::vec(any::<u8>(), 0..420),
        ) {
            let credential = &credentials(1)[usize::from(scheme == ProofScheme::Ed25519)];
            let reply = [&b"SNDD\x01\x02"[..], &[scheme as u8], &rest].concat();
            prop_assert!(requester(credential, 9).verify_reply(&reply).is_err());
        }
    }
}
