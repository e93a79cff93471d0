//! Servers tell each other which registrations wait to be used, so that people can review them at
//! any server.
//!
//! A server asks each other member of the groups at intervals, and stores the last answer of each.
//! An answer counts only for the server that sent it over its link. It is bounded, it is accepted
//! only after a question, and questions are answered at a limited rate: a faulty server can show
//! anything of its own, and nothing else. Nothing that a server signs depends on answers.

use std::collections::BTreeMap;
use std::time::Duration;

use encoding::{FieldReader, FieldWrite as _};
use keys::IdentityPublicKey;

use super::policy::MessageDigest;
use super::unix_seconds::UnixSeconds;
use super::wire::{MalformedEncoding, QuorumFields as _};

/// The largest number of registrations in an answer.
pub const MAX_LISTED: usize = 128;

/// The largest number of first bytes of a message in an answer.
pub const MAX_FIRST_LEN: usize = 64;

/// The first byte of a question, among the messages of signing.
pub(crate) const QUESTION: u8 = 5;

/// The first byte of an answer.
pub(crate) const ANSWER: u8 = 6;

/// The interval between two questions to a server.
const ASK_INTERVAL: Duration = Duration::from_secs(5);

/// The shortest interval between two answers to a server.
const ANSWER_INTERVAL: Duration = Duration::from_secs(2);

/// How many questions a server may leave without an answer before it is not asked any more, until
/// it has a new link. Earlier versions of this program refuse the question.
const MAX_UNANSWERED: u8 = 3;

/// A registration that was not used yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReviewedRegistration {
    /// The SHA-256 of the message.
    pub digest: MessageDigest,
    /// When it was registered.
    pub registered: UnixSeconds,
    /// Until when it may be signed.
    pub until: UnixSeconds,
    /// The ID of the local user.
    pub uid: Option<u32>,
    /// The length of the message, in bytes, if it is known.
    pub len: Option<u64>,
    /// Its first bytes, at most [`MAX_FIRST_LEN`].
    pub first: Vec<u8>,
}

/// The registrations that wait at a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegistrationList {
    /// How many there are.
    pub total: u64,
    /// The newest of them, at most [`MAX_LISTED`].
    pub newest: Vec<ReviewedRegistration>,
}

/// The exchange with the other servers.
#[derive(Debug, Default)]
pub struct ReviewExchange {
    peers: BTreeMap<[u8; 32], ReviewPeer>,
}

#[derive(Debug)]
struct ReviewPeer {
    key: IdentityPublicKey,
    ask_at: Duration,
    /// How many answers may still come, at most [`MAX_UNANSWERED`].
    expected: u8,
    /// How many questions were asked since the last answer or the beginning of the link.
    unanswered: u8,
    last_answer_to: Option<Duration>,
    /// The last answer, and when it came.
    list: Option<(Duration, RegistrationList)>,
}

impl ReviewExchange {
    /// Sets the servers that are asked and answered. What others have said is forgotten.
    pub fn set_peers(&mut self, servers: impl IntoIterator<Item = IdentityPublicKey>) {
        let mut before = std::mem::take(&mut self.peers);
        for key in servers {
            let peer = before.remove(&key.to_bytes()).unwrap_or(ReviewPeer {
                key,
                ask_at: Duration::ZERO,
                expected: 0,
                unanswered: 0,
                last_answer_to: None,
                list: None,
            });
            self.peers.insert(key.to_bytes(), peer);
        }
    }

    /// A server has a new link. A question may already be on it, so its answer is still expected.
    pub fn handle_link_up(&mut self, server: &IdentityPublicKey, now: Duration) {
        if let Some(peer) = self.peers.get_mut(&server.to_bytes()) {
            (peer.unanswered, peer.ask_at) = (0, now);
        }
    }

    /// The next question, and the server to send it to. Call this until it returns nothing.
    pub fn poll_question(&mut self, now: Duration) -> Option<(IdentityPublicKey, Vec<u8>)> {
        let is_due =
            |peer: &&mut ReviewPeer| peer.ask_at <= now && peer.unanswered < MAX_UNANSWERED;
        let peer = self.peers.values_mut().find(is_due)?;
        peer.unanswered += 1;
        peer.expected = (peer.expected + 1).min(MAX_UNANSWERED);
        peer.ask_at = now + ASK_INTERVAL;
        Some((peer.key, vec![QUESTION]))
    }

    /// Handles a message, a question or an answer. Returns whether to answer.
    ///
    /// # Errors
    /// If it is malformed, or an answer that was not asked for.
    pub fn handle(
        &mut self,
        now: Duration,
        from: &IdentityPublicKey,
        bytes: &[u8],
    ) -> Result<bool, MalformedEncoding> {
        let peer = self.peers.get_mut(&from.to_bytes());
        match (bytes.split_first(), peer) {
            (Some((&QUESTION, [])), Some(peer)) => {
                let is_early = peer.last_answer_to.is_some_and(|last| now < last + ANSWER_INTERVAL);
                if is_early {
                    return Ok(false);
                }
                peer.last_answer_to = Some(now);
                Ok(true)
            }
            // It is in no group that this server knows. It may have been when it was asked.
            (Some((&QUESTION, []) | (&ANSWER, _)), None) => Ok(false),
            (Some((&ANSWER, list)), Some(peer)) if peer.expected > 0 => {
                peer.list = Some((now, RegistrationList::parse(list)?));
                (peer.expected, peer.unanswered) = (peer.expected - 1, 0);
                Ok(false)
            }
            (Some((&ANSWER, _)), Some(_)) => {
                Err(MalformedEncoding("a list that was not asked for"))
            }
            _ => Err(MalformedEncoding("a malformed question for registrations")),
        }
    }

    /// The last answer of each server, with its age.
    pub fn lists(
        &self,
        now: Duration,
    ) -> impl Iterator<Item = (IdentityPublicKey, Option<(Duration, &RegistrationList)>)> {
        self.peers.values().map(move |peer| {
            let list = peer.list.as_ref();
            (peer.key, list.map(|(at, list)| (now.saturating_sub(*at), list)))
        })
    }
}

impl RegistrationList {
    /// The answer to a question.
    pub fn to_answer(&self) -> Vec<u8> {
        let mut out = vec![ANSWER];
        out.put_u64(self.total);
        let newest = &self.newest[..self.newest.len().min(MAX_LISTED)];
        // At most 128.
        out.push(u8::try_from(newest.len()).unwrap_or(u8::MAX));
        for it in newest {
            out.extend(it.digest.0);
            out.put_u64(it.registered.0);
            out.put_u64(it.until.0);
            out.put_u64(it.uid.map_or(u64::MAX, u64::from));
            out.put_u64(it.len.unwrap_or(u64::MAX));
            let first = &it.first[..it.first.len().min(MAX_FIRST_LEN)];
            out.push(u8::try_from(first.len()).unwrap_or(u8::MAX));
            out.extend(first);
        }
        out
    }

    fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let total = reader.u64()?;
        let count = usize::from(reader.u8()?);
        if count > MAX_LISTED || total < count as u64 {
            return Err(MalformedEncoding("more registrations than an answer may have"));
        }
        let mut newest = Vec::with_capacity(count);
        for _ in 0..count {
            let digest = MessageDigest(reader.digest()?.0);
            let (registered, until) = (UnixSeconds(reader.u64()?), UnixSeconds(reader.u64()?));
            let (uid, len) = (reader.u64()?, reader.u64()?);
            let first_len = usize::from(reader.u8()?);
            if first_len > MAX_FIRST_LEN {
                return Err(MalformedEncoding("more of a message than an answer may have"));
            }
            newest.push(ReviewedRegistration {
                digest,
                registered,
                until,
                uid: u32::try_from(uid).ok(),
                len: Some(len).filter(|len| *len != u64::MAX),
                first: reader.bytes(first_len)?.to_vec(),
            });
        }
        reader.finish()?;
        Ok(Self { total, newest })
    }
}

#[cfg(test)]
mod tests {
    use keys::IdentitySecretKey;

    use super::*;

    fn keys() -> [IdentityPublicKey; 3] {
        [1, 2, 3].map(|byte| IdentitySecretKey::new(&[byte; 32]).public())
    }

    fn list(count: usize) -> RegistrationList {
        let registration = |number: usize| ReviewedRegistration {
            digest: MessageDigest::of(&number.to_be_bytes()),
            registered: UnixSeconds(1_000),
            until: UnixSeconds(2_000),
            uid: number.is_multiple_of(2).then_some(1_000),
            len: (!number.is_multiple_of(3)).then_some(12),
            first: vec![b'x'; number.min(MAX_FIRST_LEN)],
        };
        RegistrationList { total: count as u64, newest: (0..count).map(registration).collect() }
    }

    fn shown(exchange: &ReviewExchange, now: Duration) -> Vec<(IdentityPublicKey, u64)> {
        let answered = exchange.lists(now).filter_map(|(key, list)| Some((key, list?.1.total)));
        answered.collect()
    }

    #[test]
    fn a_server_shows_what_another_one_answers() {
        let [own, other, _] = keys();
        let (mut here, mut there) = (ReviewExchange::default(), ReviewExchange::default());
        here.set_peers([other]);
        there.set_peers([own]);
        let now = Duration::from_secs(9);
        let (to, question) = here.poll_question(now).unwrap();
        assert!(to == other && here.poll_question(now).is_none());
        assert_eq!(there.handle(now, &own, &question), Ok(true));
        assert_eq!(here.handle(now, &other, &list(7).to_answer()), Ok(false));
        let lists: Vec<_> = here.lists(now + Duration::from_secs(4)).collect();
        assert_eq!(lists, [(other, Some((Duration::from_secs(4), &list(7))))]);
        // More than fit are counted.
        let many = RegistrationList::parse(&list(300).to_answer()[1..]).unwrap();
        assert_eq!((many.total, many.newest.len()), (300, MAX_LISTED));
        here.set_peers([own]);
        assert!(shown(&here, now).is_empty());
    }

    /// A faulty server shows only its own, and its flood is neither stored nor answered.
    #[test]
    fn a_flood_of_lists_and_questions_changes_nothing() {
        let [faulty, correct, stranger] = keys();
        let mut exchange = ReviewExchange::default();
        exchange.set_peers([faulty, correct]);
        let now = Duration::from_secs(1);
        exchange.handle_link_up(&faulty, now);
        exchange.handle_link_up(&correct, now);
        while exchange.poll_question(now).is_some() {}
        assert_eq!(exchange.handle(now, &correct, &list(1).to_answer()), Ok(false));
        assert_eq!(exchange.handle(now, &faulty, &list(2).to_answer()), Ok(false));
        for number in 3..1_000 {
            assert!(exchange.handle(now, &faulty, &list(number).to_answer()).is_err());
            assert_eq!(exchange.handle(now, &stranger, &list(number).to_answer()), Ok(false));
        }
        let expected = |key| if key == correct { (key, 1) } else { (key, 2) };
        assert!(shown(&exchange, now).iter().all(|it| *it == expected(it.0)));
        assert_eq!(shown(&exchange, now).len(), 2);
        let answers = |exchange: &mut ReviewExchange, now| {
            (0..1_000).filter(|_| exchange.handle(now, &faulty, &[QUESTION]) == Ok(true)).count()
        };
        assert_eq!(answers(&mut exchange, now), 1);
        assert_eq!(answers(&mut exchange, now + ANSWER_INTERVAL), 1);
        assert_eq!(exchange.handle(now, &stranger, &[QUESTION]), Ok(false));
    }

    /// The question can be sent on a new link before this server hears of the link. A correct
    /// server that answers it sends nothing that is refused.
    #[test]
    fn a_question_that_was_asked_before_the_link_was_known_is_answered() {
        let [other, ..] = keys();
        let mut exchange = ReviewExchange::default();
        exchange.set_peers([other]);
        let now = Duration::from_secs(1);
        assert!(exchange.poll_question(now).is_some());
        exchange.handle_link_up(&other, now);
        assert_eq!(exchange.handle(now, &other, &list(1).to_answer()), Ok(false));
        assert!(exchange.poll_question(now).is_some());
        assert_eq!(exchange.handle(now, &other, &list(2).to_answer()), Ok(false));
        assert_eq!(shown(&exchange, now), [(other, 2)]);
        assert!(exchange.handle(now, &other, &list(3).to_answer()).is_err());
        // It leaves the group while it answers.
        assert!(exchange.poll_question(now + ASK_INTERVAL).is_some());
        exchange.set_peers([]);
        assert_eq!(exchange.handle(now, &other, &list(4).to_answer()), Ok(false));
    }

    #[test]
    fn a_server_that_does_not_answer_is_not_asked_for_ever() {
        let [other, ..] = keys();
        let mut exchange = ReviewExchange::default();
        exchange.set_peers([other]);
        exchange.handle_link_up(&other, Duration::ZERO);
        let questions =
            (0..100).filter(|it| exchange.poll_question(ASK_INTERVAL * *it).is_some()).count();
        assert_eq!(questions, usize::from(MAX_UNANSWERED));
        exchange.handle_link_up(&other, ASK_INTERVAL * 200);
        assert!(exchange.poll_question(ASK_INTERVAL * 200).is_some());
    }

    #[test]
    fn only_whole_answers_within_the_bounds_are_parsed() {
        let bytes = list(5).to_answer()[1..].to_vec();
        assert_eq!(RegistrationList::parse(&bytes).unwrap(), list(5));
        for len in 0..bytes.len() {
            assert!(RegistrationList::parse(&bytes[..len]).is_err(), "{len}");
        }
        assert!(RegistrationList::parse(&[&bytes[..], &[0]].concat()).is_err());
        let mut many = bytes.clone();
        many[8] = u8::try_from(MAX_LISTED).unwrap() + 1;
        assert!(RegistrationList::parse(&many).is_err());
        let mut few = bytes;
        few[7] = 4;
        assert!(RegistrationList::parse(&few).is_err(), "fewer than are listed");
    }
}
