//! Transfer codes: a few words by which two ends that have never met authenticate each other. The
//! words are the password of SPAKE2. `docs/protocols/code.md` specifies the protocol.

mod exchange;

pub(crate) use exchange::{
    CONFIRMATION_LEN, CodeKeys, CodeTyper, GREETING_LEN, READY_LEN, REPLY_LEN, SEALED_OFFER_LEN,
    answer,
};

use std::fmt;
use std::str::FromStr;

use keys::IdentityPublicKey;
use zeroize::Zeroizing;

use super::relay::{RelaySecret, RelayToken, TOKEN_LEN};

/// The words: the English list of BIP 39 (`words-license.txt`). The first four letters of a word
/// are those of no other word.
const WORDS: &str = include_str!("code/words.txt");

/// The number of words in the list.
const WORD_COUNT: u16 = 2048;

/// The number of words in a code: 44 bits.
const CODE_WORDS: usize = 4;

/// The numbers of codes for a relay.
const NUMBERS: std::ops::RangeInclusive<u32> = 10_000..=99_999;

/// The number of letters that identify a word.
const SIGNIFICANT_LETTERS: usize = 4;

/// The length of an encoded [`PairingOffer`].
const OFFER_LEN: usize = 1 + keys::KEY_LEN + TOKEN_LEN;

/// The length of the random bytes of a code.
pub(crate) const RANDOM_LEN: usize = 16;

/// A code that one end shows and the user types at the other end: four words. If the ends meet at a
/// relay, the words follow a number, which is not secret.
///
/// ```
/// use sunder_transport::TransferCode;
///
/// let code: TransferCode = "48213-river-Lamp ocea-zebra".parse()?;
/// assert_eq!(code.text().as_str(), "48213-river-lamp-ocean-zebra");
/// # Ok::<_, sunder_transport::TransferCodeError>(())
/// ```
#[derive(Clone)]
pub struct TransferCode {
    number: Option<u32>,
    words: Zeroizing<[u16; CODE_WORDS]>,
}

/// Why a text is not a code. None of these costs the code: it has not been sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TransferCodeError {
    /// The number of words is wrong.
    #[error("a code has {CODE_WORDS} words, and {0} were given; type it as the other end shows it")]
    Count(usize),
    /// A word is not in the list.
    #[error("{0} is not a word of codes; type the code as the other end shows it")]
    Word(String),
    /// The number is impossible.
    #[error("{0} is not a number of codes; type the code as the other end shows it")]
    Number(String),
}

impl TransferCode {
    /// The code of these random bytes, for a meeting at a relay or at an address.
    pub(crate) fn of_random(random: &[u8; RANDOM_LEN], is_at_relay: bool) -> Self {
        let mut words = Zeroizing::new([0; CODE_WORDS]);
        let (word_bytes, number_bytes) = random.split_at(2 * CODE_WORDS);
        for (word, bytes) in words.iter_mut().zip(word_bytes.chunks_exact(2)) {
            // The count of words is a power of two, so that all are equally likely.
            *word = u16::from_be_bytes([bytes[0], bytes[1]]) % WORD_COUNT;
        }
        let number_bytes = number_bytes.first_chunk().expect("eight bytes are left");
        let count = u64::from(NUMBERS.end() - NUMBERS.start() + 1);
        let number = u64::from_be_bytes(*number_bytes) % count;
        let number = NUMBERS.start() + u32::try_from(number).expect("it is less than the count");
        Self { number: is_at_relay.then_some(number), words }
    }

    /// Whether the ends meet at a relay.
    pub fn is_for_relay(&self) -> bool {
        self.number.is_some()
    }

    /// The secret of the end that waits at a relay.
    pub(crate) fn relay_secret(&self) -> Option<RelaySecret> {
        self.number.map(RelaySecret::of_code)
    }

    /// The code as the user types it.
    pub fn text(&self) -> Zeroizing<String> {
        let mut text = Zeroizing::new(String::new());
        if let Some(number) = self.number {
            text.push_str(&number.to_string());
        }
        for word in self.words.iter() {
            if !text.is_empty() {
                text.push('-');
            }
            text.push_str(WORDS.lines().nth((*word).into()).unwrap_or_default());
        }
        text
    }
}

impl fmt::Debug for TransferCode {
    /// Redacted.
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("TransferCode(..)")
    }
}

impl FromStr for TransferCode {
    type Err = TransferCodeError;

    /// Parses what a user has typed: in any case, with hyphens or spaces, and with at least the
    /// first four letters of each word.
    fn from_str(text: &str) -> Result<Self, TransferCodeError> {
        let mut parts: Vec<&str> = text
            .split(|c: char| c == '-' || c.is_whitespace())
            .filter(|part| !part.is_empty())
            .collect();
        let mut number = None;
        if let Some(first) = parts.first().filter(|part| part.starts_with(|c: char| c.is_numeric()))
        {
            let parsed = first.parse().ok().filter(|number| NUMBERS.contains(number));
            number = Some(parsed.ok_or_else(|| TransferCodeError::Number((*first).to_owned()))?);
            parts.remove(0);
        }
        if parts.len() != CODE_WORDS {
            return Err(TransferCodeError::Count(parts.len()));
        }
        let mut words = Zeroizing::new([0; CODE_WORDS]);
        for (word, part) in words.iter_mut().zip(parts) {
            *word = word_index(part).ok_or_else(|| TransferCodeError::Word(part.to_owned()))?;
        }
        Ok(Self { number, words })
    }
}

/// The index of a word, or of the word that begins with these four or more letters.
fn word_index(typed: &str) -> Option<u16> {
    let typed = typed.to_lowercase();
    let is_prefix = typed.chars().count() >= SIGNIFICANT_LETTERS;
    let found =
        WORDS.lines().position(|word| word == typed || (is_prefix && word.starts_with(&typed)));
    found.and_then(|index| u16::try_from(index).ok())
}

/// Whether an end of a transfer sends or receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransferRole {
    /// It sends a file.
    Sender,
    /// It receives.
    Receiver,
}

/// What an end tells the other one, encrypted, after both have proven that they know the code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairingOffer {
    /// Whether it sends or receives.
    pub role: TransferRole,
    /// Its public key.
    pub key: IdentityPublicKey,
    /// The token under which it waits at the relay, if it is a receiver at a relay.
    pub relay_token: Option<RelayToken>,
}

impl PairingOffer {
    /// The offer of an end with this identity. A receiver at a relay waits there as
    /// [`Listener::via`](crate::Listener::via) does.
    pub fn new(identity: &keys::IdentitySecretKey, role: TransferRole, is_at_relay: bool) -> Self {
        let is_waiting = is_at_relay && role == TransferRole::Receiver;
        let relay_token = is_waiting.then(|| RelaySecret::of_identity(identity).token());
        Self { role, key: identity.public(), relay_token }
    }

    fn encode(&self) -> [u8; OFFER_LEN] {
        let mut bytes = [0; OFFER_LEN];
        bytes[0] = match (self.role, self.relay_token.is_some()) {
            (TransferRole::Sender, _) => 0,
            (TransferRole::Receiver, false) => 1,
            (TransferRole::Receiver, true) => 2,
        };
        bytes[1..=keys::KEY_LEN].copy_from_slice(&self.key.to_bytes());
        if let Some(token) = self.relay_token {
            bytes[1 + keys::KEY_LEN..].copy_from_slice(&token.to_bytes());
        }
        bytes
    }

    fn parse(bytes: &[u8; OFFER_LEN]) -> Option<Self> {
        let (role, token) = match bytes[0] {
            0 => (TransferRole::Sender, false),
            1 => (TransferRole::Receiver, false),
            2 => (TransferRole::Receiver, true),
            _ => return None,
        };
        let key = IdentityPublicKey::from_bytes(bytes[1..].first_chunk()?).ok()?;
        let relay_token = if token {
            Some(RelayToken::from_bytes(*bytes[1 + keys::KEY_LEN..].first_chunk()?))
        } else {
            None
        };
        Some(Self { role, key, relay_token })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn four_letters_identify_a_word() {
        let words: Vec<&str> = WORDS.lines().collect();
        assert_eq!(words.len(), usize::from(WORD_COUNT));
        let mut beginnings: Vec<&str> =
            words.iter().map(|word| &word[..word.len().min(SIGNIFICANT_LETTERS)]).collect();
        beginnings.dedup();
        assert_eq!(beginnings.len(), words.len());
        assert_eq!((word_index("act"), word_index("ACTION")), (Some(19), Some(20)));
        assert_eq!((word_index("acti"), word_index("ac")), (Some(20), None));
    }

    #[test]
    fn mistakes_in_a_code_are_named() {
        let wrong = |text: &str| text.parse::<TransferCode>().unwrap_err();
        assert_eq!(wrong("river-lamp-ocean"), TransferCodeError::Count(3));
        assert_eq!(wrong(""), TransferCodeError::Count(0));
        assert_eq!(wrong("river-lamp-ocaen-zebra"), TransferCodeError::Word("ocaen".into()));
        assert_eq!(wrong("7-river-lamp-ocean-zebra"), TransferCodeError::Number("7".into()));
        assert_eq!(wrong("99999999999-a"), TransferCodeError::Number("99999999999".into()));
    }

    #[test]
    fn an_offer_is_read_as_it_was_sent() {
        let identity = keys::IdentitySecretKey::new(&[7; 32]);
        for role in [TransferRole::Sender, TransferRole::Receiver] {
            for is_at_relay in [false, true] {
                let offer = PairingOffer::new(&identity, role, is_at_relay);
                assert_eq!(PairingOffer::parse(&offer.encode()), Some(offer));
            }
        }
        assert_eq!(PairingOffer::parse(&[3; OFFER_LEN]), None);
    }

    proptest! {
        #[test]
        fn a_code_is_read_as_it_is_shown(random: [u8; RANDOM_LEN], is_at_relay: bool) {
            let code = TransferCode::of_random(&random, is_at_relay);
            let read: TransferCode = code.text().parse().unwrap();
            prop_assert_eq!(read.text(), code.text());
            prop_assert_eq!(read.is_for_relay(), is_at_relay);
        }

        #[test]
        fn no_text_panics(text: String) {
            let _ = text.parse::<TransferCode>();
        }
    }
}
