//! Servers of a new group, and those that missed the end of a refresh, are invited.

use std::time::Duration;

use keys::PublicKey;

use super::Server;
use super::change::Change;
use super::output::{Event, Output};
use super::refreshing::INVITE;
use super::start::{SignedHeader, Start};
use crate::protocol::group::{Group, Member};
use crate::protocol::link::Topic;
use crate::protocol::refresh::Run;
use crate::protocol::wire::Malformed;

impl Server {
    /// Sends what servers without a start need: to those of the new group of an open run, and to
    /// those of this epoch. To all, or to one with which there is a new link.
    pub(super) fn invite(&mut self, to: Option<&PublicKey>) {
        let Some(epoch) = self.epoch.as_ref() else { return };
        if epoch.index.is_none() || !epoch.start.is_chain_signed() {
            return;
        }
        // Those of the group before follow as well, and lack the signature of this epoch's header.
        let mut members = epoch.header.group.members().to_vec();
        let before = epoch.start.group_before().into_iter().flat_map(Group::members);
        let before = before.filter(|it| epoch.header.group.index_of(&it.identity).is_none());
        members.extend(before);
        let mut invites: Vec<(Vec<Member>, Start)> = vec![(members, epoch.start.clone())];
        if let (Some(run), Some(machines)) = (epoch.board.run(), &epoch.run)
            && let Some(signature) = machines.signature.clone()
        {
            let refresh = Some(SignedHeader { header: run.header().clone(), signature });
            let start = Start { refresh, height: machines.opened_at, ..epoch.start.clone() };
            let is_old = |member: &Member| epoch.header.group.index_of(&member.identity).is_some();
            let new = run.group().members().iter().filter(|it| !is_old(it)).copied().collect();
            invites.push((new, start));
        }
        let own = self.settings.identity.public();
        for (members, start) in invites {
            let bytes = [&[INVITE][..], &start.to_bytes()].concat();
            let identities = members.iter().map(|member| member.identity);
            for identity in identities.filter(|it| *it != own && to.is_none_or(|to| to == it)) {
                self.send(identity, Topic::Refresh, bytes.clone());
            }
        }
    }

    /// Whether this server has a start with all signatures.
    pub(super) fn has_whole_start(&self) -> bool {
        self.epoch.as_ref().is_some_and(|epoch| epoch.start.is_chain_signed())
    }

    /// An invite counts if everything in it verifies. f+1 equal ones say the right height, too.
    pub(super) fn handle_invite(
        &mut self,
        now: Duration,
        from: &PublicKey,
        start: Start,
    ) -> Result<(), Malformed> {
        if self.epoch.is_some() {
            self.take_signatures(&start.chain);
            return Ok(());
        }
        let identity = start.identity();
        let group = start.header().group.clone();
        if group.index_of(from).is_none() {
            return Err(Malformed("an invite of another group"));
        }
        let own = self.settings.identity.public();
        let target = start.refresh.as_ref().map_or(&group, |refresh| &refresh.header.group);
        if target.index_of(&own).is_none() {
            return Err(Malformed("an invite to a group without this server"));
        }
        if self.invites.get(&from.to_bytes()) == Some(&identity) {
            return Ok(());
        }
        let verified = start.verify(&self.settings.public, false);
        verified.map_err(|_| Malformed("an invite that the group has not signed"))?;
        self.invites.insert(from.to_bytes(), identity);
        let is_equal =
            |member: &&Member| self.invites.get(&member.identity.to_bytes()) == Some(&identity);
        let equal = group.members().iter().filter(is_equal).count();
        if equal >= group.combination().signer_count() {
            self.accept(now, start);
        }
        Ok(())
    }

    fn accept(&mut self, now: Duration, start: Start) {
        self.invites.clear();
        self.height = start.height;
        let is_joining = start.refresh.is_some();
        if self.begin_epoch(start.clone(), false, now).is_err() {
            return;
        }
        let epoch = start.header().epoch + u64::from(is_joining);
        self.changes.push(Change::Start(start));
        self.event(Event::Invited { epoch });
        self.open_run(self.height, now);
        self.begin_run(None);
        self.follow();
    }

    /// Says with whom there are to be links, if that has changed: with the servers of this epoch,
    /// of the one before, some of which may not have heard of its end, and of the open run.
    pub(super) fn tell_peers(&mut self) {
        let Some(epoch) = &self.epoch else { return };
        let new = epoch.board.run().map(Run::group);
        let groups = [Some(&epoch.header.group), epoch.start.group_before(), new];
        let mut peers: Vec<Member> = Vec::new();
        for member in groups.into_iter().flatten().flat_map(Group::members) {
            if member.identity != self.settings.identity.public() && !peers.contains(member) {
                peers.push(*member);
            }
        }
        if peers != self.peers {
            self.peers.clone_from(&peers);
            self.outputs.push_back(Output::Peers(peers));
        }
    }
}
