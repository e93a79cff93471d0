//! Members, and a proxy that keeps its mailbox in memory and sees which slots are read.

use std::sync::Arc;

use keys::IdentitySecretKey;

use crate::{
    Conversations, GroupMember, Mailbox, MailboxShape, MemberEpoch, MemberExchange, MixGroupKey,
    MixMember, Participant, ReadRound, RoundStart,
};

pub(super) struct Proxy {
    pub(super) shape: MailboxShape,
    pub(super) epoch: u32,
    pub(super) round: u64,
    pub(super) closed: Option<(ReadRound, Mailbox)>,
    open: Mailbox,
    participants: Vec<Participant>,
}

impl Proxy {
    pub(super) fn new(shape: MailboxShape) -> Self {
        let open = Mailbox::new(&shape);
        Self { shape, epoch: 1, round: 1, closed: None, open, participants: Vec::new() }
    }

    pub(super) fn start(&self) -> RoundStart {
        let read = self.closed.as_ref().map(|(read, _)| read.clone());
        RoundStart { epoch: self.epoch, round: self.round, read }
    }

    pub(super) fn hand_in(&mut self, member: u16, exchange: &MemberExchange) {
        self.open.add(&exchange.update);
        self.participants.push(Participant { member, nonce: exchange.nonce });
        self.participants.sort_unstable_by_key(|it| it.member);
    }

    pub(super) fn slots(&self, exchange: &MemberExchange) -> Vec<Vec<u8>> {
        assert_eq!(exchange.reads.len(), self.shape.reads());
        let empty = Mailbox::new(&self.shape);
        let mailbox = self.closed.as_ref().map_or(&empty, |(_, mailbox)| mailbox);
        exchange.reads.iter().map(|&slot| mailbox.slot(slot).to_vec()).collect()
    }

    pub(super) fn close(&mut self) {
        let participants = std::mem::take(&mut self.participants);
        let mailbox = std::mem::replace(&mut self.open, Mailbox::new(&self.shape));
        self.closed = Some((ReadRound { round: self.round, participants }, mailbox));
        self.round += 1;
    }

    /// The open round is lost, and so is the closed mailbox.
    pub(super) fn restart(&mut self) {
        self.close();
        self.closed = None;
    }

    pub(super) fn begin_epoch(&mut self) {
        self.restart();
        (self.epoch, self.round) = (self.epoch + 1, 1);
    }
}

pub(super) fn identity(number: usize) -> Arc<IdentitySecretKey> {
    let mut random = [7; 32];
    random[..8].copy_from_slice(&(number as u64).to_be_bytes());
    Arc::new(IdentitySecretKey::new(&random))
}

pub(super) fn name(number: usize) -> String {
    format!("member {number}")
}

/// The group key of an epoch of the tests.
pub(super) fn group_key(epoch: u32) -> MixGroupKey {
    let mut key = [3; 32];
    key[..4].copy_from_slice(&epoch.to_be_bytes());
    MixGroupKey::new(key)
}

/// An epoch with these people, as one of them sees it.
pub(super) fn epoch(number: u32, shape: MailboxShape, people: &[usize], own: usize) -> MemberEpoch {
    let info = |&person: &usize| GroupMember { name: name(person), key: identity(person).public() };
    let members = people.iter().map(info).collect();
    MemberEpoch::new(number, shape, &identity(own).public(), group_key(number), members).unwrap()
}

/// One of these people, with conversations and a seed.
pub(super) fn member(
    epoch: MemberEpoch,
    own: usize,
    conversations: Conversations,
    seed: u64,
) -> MixMember {
    let mut bytes = [9; 32];
    bytes[..8].copy_from_slice(&seed.to_be_bytes());
    MixMember::new(identity(own), epoch, conversations, 0, bytes)
}

/// A group of `shape.members()` in its first epoch.
pub(super) fn group(shape: MailboxShape) -> (Proxy, Vec<MixMember>) {
    let people: Vec<usize> = (0..shape.members()).collect();
    let new = |&own: &usize| {
        let conversations = Conversations::new(1000 + own as u64);
        member(epoch(1, shape, &people, own), own, conversations, own as u64)
    };
    (Proxy::new(shape), people.iter().map(new).collect())
}

/// A round in which all take part and nothing is lost.
pub(super) fn run_round(proxy: &mut Proxy, members: &mut [MixMember]) -> Vec<MemberExchange> {
    let start = proxy.start();
    let mut exchanges = Vec::new();
    for (number, member) in (0..).zip(members.iter_mut()) {
        let exchange = member.handle_round(&start, true).unwrap();
        proxy.hand_in(number, &exchange);
        member.handle_slots(&proxy.slots(&exchange));
        exchanges.push(exchange);
    }
    proxy.close();
    exchanges
}
