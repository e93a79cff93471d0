//! The exchange in which both ends prove that they know a code. The end that types the code proves
//! it first, so that the other end reveals nothing before.
//!
//! | from | message | bytes |
//! |---|---|---|
//! | typing end | `"SNDRCODE"` 01, SPAKE2's first message | 41 |
//! | showing end | 0, SPAKE2's second message | 33 |
//! | typing end | its confirmation | 32 |
//! | showing end | 0, its confirmation, its offer, sealed | 122 |
//! | typing end | its offer, sealed | 89 |
//! | showing end | `"ready"`, sealed | 45 |

use keys::sealed::SealedKey;
use keys::{KEY_LEN, SharedKey};
use rand_core::utils::next_word_via_fill;
use rand_core::{TryCryptoRng, TryRng};
use random::{RandomError, RandomGenerator};
use sha2::{Digest, Sha256};
use spake2::{Ed25519Group, Identity, Password, Spake2};
use zeroize::Zeroizing;

use super::{OFFER_LEN, PairingOffer, TransferCode};

const MAGIC: &[u8; 9] = b"SNDRCODE\x01";

/// The length of an encoded group element.
pub(crate) const REPLY_LEN: usize = 32;

/// The length of the typing end's first message.
pub(crate) const GREETING_LEN: usize = MAGIC.len() + REPLY_LEN;

/// The length of a confirmation.
pub(crate) const CONFIRMATION_LEN: usize = 32;

/// The length of a sealed offer.
pub(crate) const SEALED_OFFER_LEN: usize = OFFER_LEN + SealedKey::OVERHEAD;

/// The plaintext of the last message.
const READY: &[u8] = b"ready";

/// The length of the last message.
pub(crate) const READY_LEN: usize = READY.len() + SealedKey::OVERHEAD;

/// The bytes with which `spake2` marks the side of a message.
const TYPING_MARK: u8 = b'A';
const SHOWING_MARK: u8 = b'B';

/// The end that types the code, after its first message.
pub(crate) struct CodeTyper(Spake2<Ed25519Group>);

impl CodeTyper {
    /// Begins the exchange. Also returns the first message.
    pub(crate) fn new(
        code: &TransferCode,
        seed: Zeroizing<[u8; KEY_LEN]>,
    ) -> (Self, [u8; GREETING_LEN]) {
        let (typing, showing) = identities();
        let rng = CodeExchangeRng::new(seed);
        let (pake, message) = Spake2::start_a_with_rng(&password(code), &typing, &showing, rng);
        let mut greeting = [0; GREETING_LEN];
        greeting[..MAGIC.len()].copy_from_slice(MAGIC);
        greeting[MAGIC.len()..].copy_from_slice(&message[1..]);
        (Self(pake), greeting)
    }

    /// The keys that follow from the other end's message; `None` if it is no group element.
    pub(crate) fn keys(self, reply: &[u8; REPLY_LEN]) -> Option<CodeKeys> {
        CodeKeys::of(self.0, SHOWING_MARK, reply, true)
    }
}

/// The answer of the end that shows the code to a first message, with the keys that follow; `None`
/// if the message is none of this protocol.
pub(crate) fn answer(
    code: &TransferCode,
    greeting: &[u8; GREETING_LEN],
    seed: Zeroizing<[u8; KEY_LEN]>,
) -> Option<(CodeKeys, [u8; REPLY_LEN])> {
    let element = greeting.strip_prefix(MAGIC)?.first_chunk()?;
    let (typing, showing) = identities();
    let rng = CodeExchangeRng::new(seed);
    let (pake, message) = Spake2::start_b_with_rng(&password(code), &typing, &showing, rng);
    let keys = CodeKeys::of(pake, TYPING_MARK, element, false)?;
    Some((keys, *message.last_chunk()?))
}

/// The password, which includes the number.
fn password(code: &TransferCode) -> Password {
    Password::new(code.text().as_bytes())
}

fn identities() -> (Identity, Identity) {
    (Identity::new(b"Sunder code 1 typing"), Identity::new(b"Sunder code 1 showing"))
}

/// The keys of an exchange. They are the same at both ends only if both used the same code and
/// received what the other one sent.
pub(crate) struct CodeKeys {
    /// SPAKE2's key: a digest of the code, both messages and the shared element.
    shared: SharedKey,
    is_typing: bool,
}

impl CodeKeys {
    fn of(
        pake: Spake2<Ed25519Group>,
        mark: u8,
        element: &[u8; REPLY_LEN],
        is_typing: bool,
    ) -> Option<Self> {
        let message = [&[mark][..], element].concat();
        let key = Zeroizing::new(pake.finish(&message).ok()?);
        Some(Self { shared: SharedKey::new(key.first_chunk()?), is_typing })
    }

    /// The proof that this end knows the code.
    pub(crate) fn confirmation(&self) -> [u8; CONFIRMATION_LEN] {
        self.shared.authenticate(&[b"confirm ", end_label(self.is_typing)])
    }

    /// Whether the other end has proven that it knows the code.
    pub(crate) fn is_confirmed_by(&self, confirmation: &[u8; CONFIRMATION_LEN]) -> bool {
        self.shared.verify(&[b"confirm ", end_label(!self.is_typing)], confirmation)
    }

    /// Encrypts this end's offer.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub(crate) fn seal_offer(&self, offer: &PairingOffer) -> Result<Vec<u8>, RandomError> {
        self.seal(b"offer", &offer.encode())
    }

    /// Decrypts the other end's offer; `None` if it was changed.
    pub(crate) fn open_offer(&self, sealed: &[u8; SEALED_OFFER_LEN]) -> Option<PairingOffer> {
        let opened = self.sealing(!self.is_typing).open(b"offer", sealed)?;
        PairingOffer::parse(opened.first_chunk()?)
    }

    /// The message that this end is ready for connections.
    ///
    /// # Errors
    /// If the system provides no random bytes.
    pub(crate) fn seal_ready(&self) -> Result<Vec<u8>, RandomError> {
        self.seal(READY, READY)
    }

    /// Whether this is the other end's message that it is ready.
    pub(crate) fn is_ready(&self, sealed: &[u8; READY_LEN]) -> bool {
        self.sealing(!self.is_typing).open(READY, sealed).is_some_and(|opened| *opened == *READY)
    }

    fn seal(&self, context: &[u8], content: &[u8]) -> Result<Vec<u8>, RandomError> {
        self.sealing(self.is_typing).seal(context, content, &mut RandomGenerator::system())
    }

    fn sealing(&self, is_typing: bool) -> SealedKey {
        let key = Zeroizing::new(self.shared.authenticate(&[b"seal ", end_label(is_typing)]));
        SealedKey::new(&key)
    }
}

fn end_label(is_typing: bool) -> &'static [u8] {
    if is_typing { b"typing" } else { b"showing" }
}

/// The random numbers of one exchange: the SHA-256 digests of a seed and a counter.
struct CodeExchangeRng {
    seed: Zeroizing<[u8; KEY_LEN]>,
    count: u64,
}

impl CodeExchangeRng {
    fn new(seed: Zeroizing<[u8; KEY_LEN]>) -> Self {
        Self { seed, count: 0 }
    }
}

impl TryRng for CodeExchangeRng {
    type Error = std::convert::Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Self::Error> {
        next_word_via_fill(self)
    }

    fn try_next_u64(&mut self) -> Result<u64, Self::Error> {
        next_word_via_fill(self)
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Self::Error> {
        for chunk in bytes.chunks_mut(KEY_LEN) {
            let state = Sha256::new().chain_update(*self.seed);
            let block = state.chain_update(self.count.to_be_bytes()).finalize();
            chunk.copy_from_slice(&block[..chunk.len()]);
            self.count += 1;
        }
        Ok(())
    }
}

impl TryCryptoRng for CodeExchangeRng {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::code::TransferRole;

    fn code(text: &str) -> TransferCode {
        text.parse().unwrap()
    }

    fn seed(number: u8) -> Zeroizing<[u8; KEY_LEN]> {
        Zeroizing::new([number; KEY_LEN])
    }

    /// The keys of both ends, with these codes.
    fn exchanged(typed: &str, shown: &str) -> (CodeKeys, CodeKeys) {
        let (typer, greeting) = CodeTyper::new(&code(typed), seed(1));
        let (showing, reply) = answer(&code(shown), &greeting, seed(2)).unwrap();
        (typer.keys(&reply).unwrap(), showing)
    }

    #[test]
    fn both_ends_confirm_the_same_code_and_learn_the_keys() {
        let (typing, showing) = exchanged("river lamp ocea zebra", "river-lamp-ocean-zebra");
        assert!(showing.is_confirmed_by(&typing.confirmation()));
        assert!(typing.is_confirmed_by(&showing.confirmation()));
        let identity = keys::IdentitySecretKey::new(&[7; 32]);
        let offer = PairingOffer::new(&identity, TransferRole::Receiver, true);
        let sealed: [u8; SEALED_OFFER_LEN] =
            showing.seal_offer(&offer).unwrap().try_into().unwrap();
        assert_eq!(typing.open_offer(&sealed), Some(offer));
        for at in 0..SEALED_OFFER_LEN {
            let mut changed = sealed;
            changed[at] ^= 1;
            assert_eq!(typing.open_offer(&changed), None, "byte {at}");
        }
        let ready: [u8; READY_LEN] = showing.seal_ready().unwrap().try_into().unwrap();
        assert!(typing.is_ready(&ready) && !showing.is_ready(&ready));
    }

    #[test]
    fn another_word_order_or_number_is_not_confirmed() {
        for typed in
            ["river-lamp-ocean-zoo", "lamp-river-ocean-zebra", "48213-river-lamp-ocean-zebra"]
        {
            let (typing, showing) = exchanged(typed, "river-lamp-ocean-zebra");
            assert!(!showing.is_confirmed_by(&typing.confirmation()), "{typed}");
            assert!(!typing.is_confirmed_by(&showing.confirmation()), "{typed}");
        }
    }

    /// Reflected confirmations, replayed ones and changed messages prove nothing.
    #[test]
    fn an_attacker_on_the_path_cannot_confirm() {
        let words = "river-lamp-ocean-zebra";
        let (typing, showing) = exchanged(words, words);
        assert!(!typing.is_confirmed_by(&typing.confirmation()), "reflected");
        assert!(!showing.is_confirmed_by(&showing.confirmation()), "reflected");
        let (_, greeting) = CodeTyper::new(&code(words), seed(1));
        let (later, _) = answer(&code(words), &greeting, seed(3)).unwrap();
        assert!(!later.is_confirmed_by(&typing.confirmation()), "replayed");
        for at in 0..GREETING_LEN {
            let (typer, mut greeting) = CodeTyper::new(&code(words), seed(1));
            greeting[at] ^= 1;
            // Most changes give no element of the group.
            if let Some((showing, reply)) = answer(&code(words), &greeting, seed(2)) {
                let typing = typer.keys(&reply).unwrap();
                assert!(!showing.is_confirmed_by(&typing.confirmation()), "byte {at}");
                assert!(!typing.is_confirmed_by(&showing.confirmation()), "byte {at}");
            }
        }
        // Its own message, as if it came from the other end.
        let (typer, greeting) = CodeTyper::new(&code(words), seed(1));
        let reflected = typer.keys(greeting.last_chunk().unwrap()).unwrap();
        assert!(!reflected.is_confirmed_by(&reflected.confirmation()));
    }
}
