//! What waits for review: registrations at this server and at the others, and proposed lists.

use std::time::Instant;

use base16ct::lower;
use keys::IdentityPublicKey;

use super::registrations::ServerRegistrations;
use super::status::PublishedNodeState;
use crate::net::api::{
    ListChange, ListChangeKind, ListedServer, PendingRegistration, PendingReview, PendingSource,
    ProposedList,
};
use crate::protocol::group::{QuorumGroup, QuorumMember};
use crate::protocol::review::ReviewedRegistration;
use crate::protocol::server::ApprovedGroup;

impl PublishedNodeState {
    /// What waits for review, as `own` knows it. `all` are all registrations that wait at `own`, if
    /// more than the newest are to be shown.
    pub(super) fn pending_review(
        &self,
        own: &IdentityPublicKey,
        all: Option<&[ReviewedRegistration]>,
        now: Instant,
    ) -> PendingReview {
        let members = self.start().map(|start| start.header().group.members()).unwrap_or_default();
        let number = |key: &IdentityPublicKey| {
            let index = members.iter().position(|member| member.identity == *key)?;
            Some(index as u64 + 1)
        };
        let mut review = PendingReview::default();
        for ServerRegistrations { server, said } in &self.registrations {
            // Others that this server only helps to follow have nothing to be reviewed here.
            if server != own && number(server).is_none() {
                continue;
            }
            let (number, identity) = (number(server), server.to_string());
            let newest = said.as_ref().map_or(&[][..], |(_, list)| &list.newest);
            for it in all.filter(|_| server == own).unwrap_or(newest) {
                review.registrations.push(PendingRegistration {
                    server: number,
                    identity: identity.clone(),
                    digest: it.digest.to_string(),
                    len: it.len,
                    first: lower::encode_string(&it.first),
                    uid: it.uid,
                    registered: it.registered.to_string(),
                    until: it.until.to_string(),
                });
            }
            review.servers.push(PendingSource {
                server: number,
                identity,
                registrations: said.as_ref().map_or(0, |(_, list)| list.total),
                age_s: said.as_ref().map(|(at, _)| now.saturating_duration_since(*at).as_secs()),
            });
        }
        review.lists = self.proposed_lists();
        review
    }

    fn proposed_lists(&self) -> Vec<ProposedList> {
        let (Some(start), Some(status)) = (self.start(), &self.server) else { return Vec::new() };
        let Some(epoch) = &status.epoch else { return Vec::new() };
        let current = &start.header().group;
        let list = |ApprovedGroup { group, servers }: &ApprovedGroup| {
            let is_own = epoch.index.is_some_and(|index| servers.contains(&index));
            ProposedList {
                group: group.digest().to_string(),
                epoch: epoch.epoch + 1,
                approved_by: servers.iter().map(|server| u64::from(server.0) + 1).collect(),
                needed: current.size().signer_count() as u64,
                begun: epoch.run.as_ref().is_some_and(|run| run.group == *group),
                until: status.approval_expires.filter(|_| is_own).map(|at| at.to_string()),
                servers: group.members().iter().map(listed).collect(),
                changes: changes(current, group),
            }
        };
        epoch.approvals.iter().map(list).collect()
    }
}

fn listed(member: &QuorumMember) -> ListedServer {
    ListedServer { identity: member.identity.to_string(), address: member.address }
}

/// The difference between the current list and a proposed one.
fn changes(current: &QuorumGroup, proposed: &QuorumGroup) -> Vec<ListChange> {
    let find = |group: &QuorumGroup, key: &IdentityPublicKey| {
        group.members().iter().find(|member| member.identity == *key).copied()
    };
    let change = |change, member: &QuorumMember, before: Option<QuorumMember>| ListChange {
        change,
        identity: member.identity.to_string(),
        address: member.address,
        before: before.map(|before| before.address),
    };
    let mut changes = Vec::new();
    for member in current.members() {
        if find(proposed, &member.identity).is_none() {
            changes.push(change(ListChangeKind::Removed, member, None));
        }
    }
    for member in proposed.members() {
        match find(current, &member.identity) {
            None => changes.push(change(ListChangeKind::Added, member, None)),
            Some(before) if before.address != member.address => {
                changes.push(change(ListChangeKind::Moved, member, Some(before)));
            }
            Some(_) => {}
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use keys::IdentitySecretKey;

    use super::*;

    #[test]
    fn a_proposed_list_names_who_is_added_removed_and_moved() {
        let member = |number: u8, port: u16| QuorumMember {
            identity: IdentitySecretKey::new(&[number; 32]).public(),
            address: ([192, 0, 2, number], port).into(),
        };
        let group = |members: Vec<QuorumMember>| QuorumGroup::new(members).unwrap();
        let current = group((1..=4).map(|number| member(number, 1)).collect());
        assert!(changes(&current, &current).is_empty());
        let proposed = group(vec![member(1, 1), member(3, 9), member(4, 1), member(5, 1)]);
        let found = changes(&current, &proposed);
        let kinds: Vec<_> = found.iter().map(|it| (it.change, it.address)).collect();
        assert_eq!(
            kinds,
            [
                (ListChangeKind::Removed, member(2, 1).address),
                (ListChangeKind::Moved, member(3, 9).address),
                (ListChangeKind::Added, member(5, 1).address),
            ]
        );
        assert_eq!(found[1].before, Some(member(3, 1).address));
    }
}
