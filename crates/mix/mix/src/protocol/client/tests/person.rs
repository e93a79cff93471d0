//! A simulated user: a client, its stored state, and the messages that the user has sent and read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use keys::IdentitySecretKey;

use super::exchanges::SINCE_1970;
use crate::protocol::client::{AcceptableTerms, MixClient, MixClientSettings, MixClientStatus};
use crate::protocol::event::{ChatMessageId, MixClientEvent};
use crate::protocol::exchange::MixExchangeKind;
use crate::protocol::membership::{
    EpochAnnouncement, GroupAddress, Invitation, MemberName, ProxyAddress,
};

/// The administrator, and the others by their places.
pub(super) const NAMES: [&str; 3] = ["alice", "bob", "carol"];

/// The same in a larger group.
pub(super) const CROWD: [&str; 16] = [
    NAMES[0], NAMES[1], NAMES[2], "dora", "emil", "frida", "georg", "hanna", "igor", "julia",
    "konrad", "lena", "max", "nora", "otto", "paula",
];

pub(super) fn secret(person: usize) -> IdentitySecretKey {
    IdentitySecretKey::new(&[u8::try_from(person + 1).unwrap(); 32])
}

pub(super) fn group() -> GroupAddress {
    GroupAddress {
        proxy_address: "127.0.0.1:6700".into(),
        proxy: IdentitySecretKey::new(&[99; 32]).public(),
        group: "friends".parse().unwrap(),
        administrator: secret(0).public(),
    }
}

/// Events since the state was last stored. If the client is killed before the next write, all of
/// them are undone or happen again.
#[derive(Default)]
struct SinceStored {
    sent: Vec<(String, ChatMessageId, String)>,
    read: Vec<(String, String)>,
    /// Or given up.
    delivered: Vec<ChatMessageId>,
}

/// A client's stored state, and what the user knows from it.
#[derive(Clone, Default)]
pub(super) struct Backup {
    stored: Option<Vec<u8>>,
    sent: BTreeMap<String, Vec<String>>,
    waiting: BTreeMap<ChatMessageId, (String, String)>,
    read: BTreeMap<String, Vec<String>>,
}

/// A state that is being written.
struct Writing {
    /// When that is done.
    due: Duration,
    state: Vec<u8>,
    /// The events between the previous state and this one.
    since_stored: SinceStored,
    is_member: bool,
}

pub(super) struct Person {
    number: usize,
    /// With which it joins.
    pub(super) name: String,
    pub(super) client: MixClient,
    stored: Option<Vec<u8>>,
    /// What it joins with, until it is a member.
    pub(super) invitation: Option<String>,
    writing: Option<Writing>,
    since_stored: SinceStored,
    /// Texts that are in the stored state, by receiver, and their numbers.
    pub(super) sent: BTreeMap<String, Vec<String>>,
    waiting: BTreeMap<ChatMessageId, (String, String)>,
    /// Texts that were read, by sender.
    pub(super) read: BTreeMap<String, Vec<String>>,
    /// Sender and text of everything that was ever shown, even if that was undone.
    pub(super) shown: Vec<(String, String)>,
    /// Receiver and text of what was reported as delivered, and of what was given up.
    pub(super) marked: Vec<(String, String)>,
    pub(super) given_up: Vec<(String, String)>,
    /// When the disk is tried again, if it is full.
    pub(super) full_until: Option<Duration>,
    /// Whether a client was started from an old state. Messages can then be missing.
    pub(super) has_restored: bool,
    /// Whether it was since the last check of the order of messages, and the number of the last
    /// text of before that: an old state can send it once more, after later ones.
    pub(super) was_restored: bool,
    pub(super) restored_after: u32,
    /// Whether the founder may found the group.
    pub(super) founds: bool,
    /// Which terms it accepts.
    pub(super) terms: AcceptableTerms,
    /// The other events of the client.
    pub(super) reported: Vec<MixClientEvent>,
    /// The time that has passed when the simulation began.
    began: Duration,
}

impl Person {
    /// A user who accepts this kind of exchange.
    pub(super) fn new(number: usize, began: Duration, seed: u64, kind: MixExchangeKind) -> Self {
        let exchange = Some(kind).filter(|kind| *kind != MixExchangeKind::Broadcast);
        let terms = AcceptableTerms { exchange, ..AcceptableTerms::default() };
        let member = (number, CROWD[number], true, terms);
        Self {
            number,
            name: CROWD[number].into(),
            client: open(member, began, began, None, None, seed),
            stored: None,
            invitation: None,
            writing: None,
            since_stored: SinceStored::default(),
            sent: BTreeMap::new(),
            waiting: BTreeMap::new(),
            read: BTreeMap::new(),
            shown: Vec::new(),
            marked: Vec::new(),
            given_up: Vec::new(),
            full_until: None,
            has_restored: false,
            was_restored: false,
            restored_after: 0,
            founds: true,
            terms,
            reported: Vec::new(),
            began,
        }
    }

    /// Starts the client from what is stored; what was not is lost. A state that was being written
    /// is the stored one if `is_written`.
    pub(super) fn start(&mut self, now: Duration, seed: u64, is_written: bool) {
        if let Some(writing) = self.writing.take().filter(|_| is_written) {
            self.commit(writing);
        }
        self.since_stored = SinceStored::default();
        let invitation = self.invitation.as_deref().map(|code| Invitation::parse(code).unwrap());
        let stored = self.stored.as_deref();
        let member = (self.number, &*self.name, self.founds, self.terms);
        self.client = open(member, self.began, now, stored, invitation, seed);
    }

    /// Where the newest announcement that it has says that the proxy is.
    pub(super) fn next_announced(&self) -> Option<&ProxyAddress> {
        self.client.epochs.newest().and_then(EpochAnnouncement::proxy)
    }

    /// What is on disk.
    pub(super) fn backup(&self) -> Backup {
        let (sent, waiting) = (self.sent.clone(), self.waiting.clone());
        Backup { stored: self.stored.clone(), sent, waiting, read: self.read.clone() }
    }

    /// Restores what was on disk. The client is to be started then.
    pub(super) fn restore(&mut self, backup: Backup) {
        let Backup { stored, sent, waiting, read } = backup;
        (self.stored, self.sent, self.waiting, self.read) = (stored, sent, waiting, read);
        (self.writing, self.was_restored) = (None, true);
    }

    /// The state is lost, and the key is not. The client is to be started then.
    pub(super) fn lose_state(&mut self) {
        self.restore(Backup::default());
    }

    /// Begins to write the state, if it has changed.
    pub(super) fn begin_to_store(&mut self, due: Duration) -> bool {
        if self.full_until.is_some_and(|until| due < until) {
            return false;
        }
        let Some(state) = self.client.poll_store() else { return false };
        if self.full_until.is_some() {
            self.client.handle_not_stored();
            return false;
        }
        assert!(self.writing.is_none(), "one state is written at a time");
        self.writing = Some(Writing {
            due,
            state: state.to_vec(),
            since_stored: std::mem::take(&mut self.since_stored),
            is_member: self.client.status().epoch > 0,
        });
        true
    }

    /// The state is on the disk, if it is time.
    pub(super) fn finish_storing(&mut self, now: Duration) {
        if let Some(writing) = self.writing.take_if(|it| it.due <= now) {
            self.commit(writing);
            self.client.handle_stored();
        }
    }

    fn commit(&mut self, Writing { state, since_stored, is_member, .. }: Writing) {
        self.stored = Some(state);
        if is_member {
            self.invitation = None;
        }
        let SinceStored { sent, read, delivered } = since_stored;
        for (to, id, text) in sent {
            let before = self.waiting.insert(id, (to.clone(), text.clone()));
            assert!(before.is_none(), "a number was used before");
            self.sent.entry(to).or_default().push(text);
        }
        for (from, text) in read {
            self.read.entry(from).or_default().push(text);
        }
        for id in delivered {
            self.waiting.remove(&id);
        }
    }

    /// What has happened and is not in the stored state.
    fn not_stored(&self) -> impl Iterator<Item = &SinceStored> {
        self.writing.iter().map(|it| &it.since_stored).chain([&self.since_stored])
    }

    /// Reads an event, if there is one. A message is the next one of its sender.
    pub(super) fn read_event(&mut self) -> bool {
        let Some(event) = self.client.event().cloned() else { return false };
        self.client.handle_shown();
        match event {
            MixClientEvent::Message { from, text, .. } => {
                let unstored = self.not_stored().flat_map(|it| &it.read);
                let unstored = unstored.filter(|it| it.0 == from).count();
                let count = self.read.get(&from).map_or(0, Vec::len) + unstored;
                let expected = format!("{count} from {from} to {}", CROWD[self.number]);
                let is_next = self.has_restored || text.starts_with(&expected);
                assert!(is_next, "{text}, and not {expected}");
                self.shown.push((from.clone(), text.clone()));
                self.since_stored.read.push((from, text));
            }
            MixClientEvent::Delivered { id, to } => {
                let waiting = self.waiting.get(&id).cloned();
                let waiting = waiting.expect("delivered twice, or never sent");
                assert_eq!(waiting.0, to);
                assert!(!self.since_stored.delivered.contains(&id), "delivered twice");
                self.since_stored.delivered.push(id);
                self.marked.push(waiting);
            }
            MixClientEvent::GivenUp { id, .. } => {
                self.since_stored.delivered.push(id);
                self.given_up.push(self.waiting[&id].clone());
            }
            other => self.reported.push(other),
        }
        true
    }

    /// Sends a message, if the client accepts it.
    pub(super) fn say(&mut self, to: &str, padding: &str) -> bool {
        let unstored = self.not_stored().flat_map(|it| &it.sent);
        let unstored = unstored.filter(|it| it.0 == to).count();
        let count = self.sent.get(to).map_or(0, Vec::len) + unstored;
        let text = format!("{count} from {} to {to}{padding}", CROWD[self.number]);
        let Ok(id) = self.client.send(to, &text) else { return false };
        self.since_stored.sent.push((to.to_owned(), id, text));
        true
    }

    pub(super) fn status(&self) -> MixClientStatus {
        self.client.status()
    }

    /// How many messages were not delivered.
    pub(super) fn undelivered(&self) -> usize {
        self.waiting.len() + self.not_stored().map(|it| it.sent.len()).sum::<usize>()
    }
}

fn open(
    (number, name, founds, terms): (usize, &str, bool, AcceptableTerms),
    began: Duration,
    now: Duration,
    stored: Option<&[u8]>,
    invitation: Option<Invitation>,
    seed: u64,
) -> MixClient {
    let settings = MixClientSettings {
        group: group(),
        founds,
        name: MemberName::new(name).unwrap(),
        invitation,
        least_participants: 2,
        terms,
        now,
        since_1970: SINCE_1970 + now.saturating_sub(began),
    };
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    MixClient::new(settings, Arc::new(secret(number)), stored, bytes).unwrap()
}
