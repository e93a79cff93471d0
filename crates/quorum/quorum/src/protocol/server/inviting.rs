//! Invites of servers of a new group, and of servers that missed the end of a refresh. The chain of
//! a start proves that an epoch has begun, whoever sends it. f+1 servers of that epoch confirm the
//! height.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::time::Duration;

use bytes::Bytes;
use keys::IdentityPublicKey;

use super::QuorumServer;
use super::change::SavedStateChange;
use super::output::{NewerEpochStatus, QuorumServerEvent, QuorumServerOutput};
use super::participation::RefreshParticipation;
use super::refreshing::INVITE;
use super::start::{GroupStart, SignedGroupHeader, has_same_headers};
use crate::protocol::group::{GroupHeader, GroupKeyAnchor, QuorumGroup, QuorumMember};
use crate::protocol::link::LinkTopic;
use crate::protocol::refresh::RefreshRun;
use crate::protocol::wire::{MalformedEncoding, Sha256Digest};

/// A newer epoch that this server has not entered. The epoch that it follows, if any, has ended.
pub(super) struct NewerEpoch {
    /// The epochs up to the newer one, all signed.
    pub(super) chain: Vec<SignedGroupHeader>,
    /// The invites from servers of that epoch, by sender.
    invites: BTreeMap<[u8; 32], Sha256Digest>,
    /// The verified starts of these invites. To verify one takes long, and most are equal.
    verified: BTreeMap<Sha256Digest, GroupStart>,
    /// The start that f+1 of them have sent.
    invited: Option<GroupStart>,
    /// Until when this server's own log may still bring it to that epoch.
    wait_until: Duration,
}

impl NewerEpoch {
    /// The header of the newer epoch.
    fn header(&self) -> &GroupHeader {
        &self.chain.last().expect("a chain has an epoch").header
    }
}

impl QuorumServer {
    /// Sends the state from which others can follow. Servers of the new group of an open run get
    /// the state of the run, and others that of this epoch. `to` is a server with a new link, which
    /// may have missed the end of an epoch, or `None` for all servers.
    pub(super) fn invite(&mut self, to: Option<&IdentityPublicKey>) {
        let Some(epoch) = self.epoch.as_ref() else { return };
        let is_whole =
            self.newer.is_none() && epoch.is_chain_signed && !epoch.agreement.is_founding();
        if !is_whole {
            return;
        }
        let encode = |start: &GroupStart| Bytes::from([&[INVITE][..], &start.to_bytes()].concat());
        let of_run = epoch.agreement.run().zip(epoch.run.as_ref()).and_then(|(run, machines)| {
            let signature = machines.signature.clone().filter(|_| epoch.index.is_some())?;
            let refresh = Some(SignedGroupHeader { header: run.header().clone(), signature });
            let start = GroupStart { refresh, height: machines.opened_at, ..epoch.start.clone() };
            Some((run.group(), encode(&start)))
        });
        let of_epoch = encode(&epoch.start);
        let own = self.settings.identity.public();
        let peers = self.peers.iter().map(|it| it.identity).filter(|it| *it != own);
        let invites = to.map_or_else(|| peers.collect(), |to| vec![*to]).into_iter().map(|to| {
            let is_old = epoch.header.group.index_of(&to).is_some();
            let of_run = of_run.as_ref().filter(|(new, _)| !is_old && new.index_of(&to).is_some());
            (to, of_run.map_or(&of_epoch, |(_, bytes)| bytes).clone())
        });
        for (to, bytes) in invites.collect::<Vec<_>>() {
            self.send(to, LinkTopic::Refresh, bytes);
        }
    }

    /// The chain of a start is proof by itself. f+1 equal starts also confirm the height.
    pub(super) fn handle_invite(
        &mut self,
        now: Duration,
        from: &IdentityPublicKey,
        bytes: &[u8],
    ) -> Result<(), MalformedEncoding> {
        // A server that generates the key learns it from the log alone.
        if let GroupKeyAnchor::Founding(_) = self.settings.anchor {
            return Ok(());
        }
        let own = self.epoch.as_ref().map(|epoch| &epoch.start);
        let known = self.newer.as_ref().map(|newer| &newer.chain[..]);
        let known = known.or(own.map(|start| &start.chain[..])).unwrap_or_default();
        // Most servers have the whole chain already, so the start is not parsed.
        let is_whole = self.epoch.as_ref().is_some_and(|epoch| epoch.is_chain_signed);
        let has_all = self.newer.is_none() && is_whole;
        let epochs = GroupStart::epochs_in(bytes)?;
        if epochs < known.len() || has_all && epochs == known.len() {
            return Ok(());
        }
        let start = GroupStart::receive(bytes, known, &self.settings.anchor)?;
        self.learn(now, &start.chain);
        self.count_invite(from, start)
    }

    /// Learns from a chain that is at least as long as the known one.
    fn learn(&mut self, now: Duration, chain: &[SignedGroupHeader]) {
        let is_new = match (&self.newer, &self.epoch) {
            (Some(newer), _) => newer.chain.len() < chain.len(),
            // This also replaces a header that was never signed.
            (None, Some(epoch)) => !has_same_headers(&epoch.start.chain, chain),
            (None, None) => true,
        };
        if is_new {
            self.changes.push(SavedStateChange::Newer(chain.to_vec()));
            self.set_newer(now, chain.to_vec());
        }
        self.take_signatures(chain);
    }

    /// A newer epoch than the followed one has begun.
    pub(super) fn set_newer(&mut self, now: Duration, chain: Vec<SignedGroupHeader>) {
        let wait_until = now + self.settings.timeouts.retry;
        self.newer = Some(NewerEpoch {
            chain,
            invites: BTreeMap::new(),
            verified: BTreeMap::new(),
            invited: None,
            wait_until,
        });
        self.expire(now);
        self.update_peers();
        if self.life.is_some() {
            // The log does not vote any more.
            self.report_applied(self.height);
        }
    }

    /// The followed epoch has ended, even if the log has not got there. Its shares are wiped now.
    /// What this server has obtained in a refresh to the newest epoch is kept.
    pub(super) fn expire(&mut self, now: Duration) {
        let (Some(newer), Some(epoch)) = (&self.newer, &mut self.epoch) else { return };
        let (number, newest) = (epoch.header.epoch, newer.header().epoch);
        (epoch.voting, self.saved_voting) = (None, None);
        let stays = newest == number + 1;
        let in_use = epoch.run.iter().flat_map(|run| run.in_use(stays));
        let shares = epoch.key.wipe().map(|shares| shares.with(in_use));
        self.changes.push(SavedStateChange::End { epoch: number });
        if let Some(run) = &mut epoch.run {
            self.changes.extend(run.end(stays));
        }
        if let Some(mut ended) = self.ended.take() {
            self.changes.extend(ended.machines.end(false));
        }
        self.operator_request = None;
        self.push(QuorumServerOutput::Event(QuorumServerEvent::EpochEnded {
            epoch: number,
            newest,
        }));
        self.wiping.extend(shares.map(|shares| (number, shares)));
        self.report_wiped();
        self.end_requests(now);
        self.end_commands();
    }

    /// Counts an invite whose chain is the newest that this server knows.
    fn count_invite(
        &mut self,
        from: &IdentityPublicKey,
        start: GroupStart,
    ) -> Result<(), MalformedEncoding> {
        let Some(newer) = &mut self.newer else { return Ok(()) };
        let own = self.settings.identity.public();
        let group = &start.header().group;
        let target = start.refresh.as_ref().map_or(group, |refresh| &refresh.header.group);
        if group.index_of(from).is_none() || target.index_of(&own).is_none() {
            return Ok(());
        }
        let identity = start.identity();
        if newer.invites.get(&from.to_bytes()) == Some(&identity) {
            return Ok(());
        }
        if let Entry::Vacant(place) = newer.verified.entry(identity) {
            let verified = start.verify_after_chain(&self.settings.anchor);
            verified.map_err(|_| MalformedEncoding("an invite that the group has not signed"))?;
            place.insert(start);
        }
        newer.invites.insert(from.to_bytes(), identity);
        newer.verified.retain(|it, _| newer.invites.values().any(|invite| invite == it));
        let is_equal = |member: &&QuorumMember| {
            newer.invites.get(&member.identity.to_bytes()) == Some(&identity)
        };
        let start = &newer.verified[&identity];
        let group = &start.header().group;
        let equal = group.members().iter().filter(is_equal).count();
        if equal >= group.size().signer_count() {
            // Its signatures are verified. Those of the last invite need not be.
            newer.invited = Some(start.clone());
        }
        Ok(())
    }

    /// A height of this server's log was applied, so the log may still bring it to the newest
    /// epoch.
    pub(super) fn extend_catch_up_wait(&mut self, now: Duration) {
        if let Some(newer) = &mut self.newer {
            newer.wait_until = now + self.settings.timeouts.retry;
        }
    }

    /// Enters the epoch to which f+1 servers have invited this one, if its own log does not get
    /// there.
    pub(super) fn step_newer(&mut self, now: Duration) {
        let is_waiting = self.epoch.is_none();
        if !is_waiting && self.height_in_work.is_some() {
            // Its own log goes on when the job has ended.
            return;
        }
        let invited = self.newer.as_mut().filter(|newer| is_waiting || newer.wait_until <= now);
        let Some(start) = invited.and_then(|newer| newer.invited.take()) else { return };
        let mut run = self.epoch.as_mut().and_then(|epoch| epoch.run.take());
        // The shares that it has computed for this epoch, if it has only missed the epoch's
        // beginning.
        let new = run.as_ref().and_then(|run| run.machines.new_server());
        let shares = new.and_then(|new| new.computed(start.header().witnesses));
        if self.begin_epoch(start.clone(), false, now).is_err() {
            return;
        }
        // The voting key follows when the log is open.
        (self.newer, self.life, self.height) = (None, None, start.height);
        let epoch = start.header().epoch + u64::from(start.refresh.is_some());
        let signer = run.as_mut().and_then(RefreshParticipation::take_signer);
        self.changes.extend(run.iter_mut().flat_map(|run| run.end(false)));
        self.changes.push(SavedStateChange::Restarted(start));
        self.start_service(now, None);
        if let Some(shares) = shares {
            self.receive_shares(&shares);
        }
        if let Some(signer) = signer {
            self.receive_signer(signer);
        }
        self.event(QuorumServerEvent::Invited { epoch });
        self.open_run(self.height, now);
        self.begin_run(None);
        self.follow();
    }

    pub(super) fn newer_deadline(&self) -> Option<Duration> {
        let newer = self.newer.as_ref().filter(|newer| newer.invited.is_some());
        newer.map(|newer| newer.wait_until)
    }

    /// The status of a newer epoch that this server has not entered.
    pub(super) fn behind(&self) -> Option<NewerEpochStatus> {
        let newer = self.newer.as_ref()?;
        let group = &newer.header().group;
        let mut counts = BTreeMap::<Sha256Digest, usize>::new();
        newer.invites.values().for_each(|it| *counts.entry(*it).or_default() += 1);
        Some(NewerEpochStatus {
            epoch: newer.header().epoch,
            is_member: group.index_of(&self.settings.identity.public()).is_some(),
            invites: counts.into_values().max().unwrap_or(0),
            needed: group.size().signer_count(),
        })
    }

    /// Updates the set of links if it has changed: to servers that can invite this one, and to the
    /// servers of this epoch, of the open run, and of the previous epoch, which may not know of its
    /// end. A server that has moved is listed with each address, the one that was signed last
    /// first.
    pub(super) fn update_peers(&mut self) {
        let own = self.settings.identity.public();
        let epoch = self.epoch.as_ref();
        let groups = epoch.map(|epoch| {
            let new = epoch.agreement.run().map(RefreshRun::group);
            [Some(&epoch.header.group), new, epoch.start.group_before()]
        });
        let newest = self.newer.as_ref().map(|newer| &newer.header().group);
        let newest = newest.filter(|group| epoch.is_none() || group.index_of(&own).is_some());
        let groups = newest.into_iter().chain(groups.into_iter().flatten().flatten());
        let mut peers: Vec<QuorumMember> = Vec::new();
        for member in groups.flat_map(QuorumGroup::members) {
            if member.identity != own && !peers.contains(member) {
                peers.push(*member);
            }
        }
        if peers != self.peers {
            self.peers.clone_from(&peers);
            self.outputs.push_back(QuorumServerOutput::Peers(peers));
        }
    }
}
