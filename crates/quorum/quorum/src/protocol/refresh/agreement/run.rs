//! An open run of a refresh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use handover::{HandoverEffect, HandoverEntryKind, HandoverFault};
use keys::IdentityPublicKey;

use super::super::complaint::{self, Complainant};
use super::super::entry::Complaint;
use super::super::handover_step::EncodedHandoverStep;
use super::super::manifest::{DealingManifest, DealingRound};
use super::super::parameters::RefreshParameters;
use super::super::possession::{self, ShareWitnesses};
use super::super::session::SessionPoint;
use super::run_handover::RunHandover;
use super::{LogEntryEffect, LogEntryRefusal, RefreshedKey};
use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::group::{GroupHeader, GroupHeaderKind, QuorumGroup};
use crate::protocol::key_sharing::KeySharing;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::voting::VotingKey;
use crate::protocol::wire::Sha256Digest;

/// An open run of a refresh.
#[derive(Clone)]
pub struct RefreshRun {
    pub(super) header: GroupHeader,
    pub(super) id: Sha256Digest,
    /// The handover of a key that is shared by a polynomial. The session keys, proofs, choices and
    /// witnesses below are of combinatorial shares.
    pub(super) handover: Option<RunHandover>,
    /// The new sharing by a polynomial with its digest, when the dealers are chosen.
    pub(super) new_sharing: Option<(KeySharing, Sha256Digest)>,
    pub(super) session_keys: BTreeMap<ServerIndex, SessionPoint>,
    /// The voting keys for the new epoch.
    pub(super) voting: BTreeMap<ServerIndex, IdentityPublicKey>,
    /// The dealings whose digests were written, with the new servers that confirmed them.
    pub(super) proofs: BTreeMap<(ServerIndex, DealingRound), ProvedDealing>,
    /// The digest of the dealing chosen for each label.
    pub(super) chosen: BTreeMap<Label, Sha256Digest>,
    pub(super) excluded: BTreeSet<ServerIndex>,
    pub(super) faulty: BTreeSet<ServerIndex>,
    /// The digest of the witnesses, or of the sharing, that each new server computed, and when.
    pub(super) computed: BTreeMap<ServerIndex, (Sha256Digest, Option<UnixSeconds>)>,
    pub(super) witnesses: BTreeMap<Sha256Digest, Arc<ShareWitnesses>>,
    /// The header of the new epoch, once 2f'+1 new servers have the same witnesses or sharing.
    pub(super) next: Option<GroupHeader>,
}

#[derive(Clone, Debug)]
pub(super) struct ProvedDealing {
    pub(super) digest: Sha256Digest,
    pub(super) confirmed_by: BTreeSet<ServerIndex>,
}

impl RefreshRun {
    pub(super) fn new(header: GroupHeader, key: &RefreshedKey) -> Self {
        let id = header.digest();
        let handover = match key {
            RefreshedKey::Combinatorial(_) => None,
            RefreshedKey::Polynomial(old) => {
                Some(RunHandover::new(id, old.as_ref(), header.group.size()))
            }
        };
        Self {
            id,
            header,
            handover,
            new_sharing: None,
            session_keys: BTreeMap::new(),
            voting: BTreeMap::new(),
            proofs: BTreeMap::new(),
            chosen: BTreeMap::new(),
            excluded: BTreeSet::new(),
            faulty: BTreeSet::new(),
            computed: BTreeMap::new(),
            witnesses: BTreeMap::new(),
            next: None,
        }
    }

    /// The identifier of the run: the digest of its refresh header.
    pub fn id(&self) -> Sha256Digest {
        self.id
    }

    /// The refresh header.
    pub fn header(&self) -> &GroupHeader {
        &self.header
    }

    /// The new group.
    pub fn group(&self) -> &QuorumGroup {
        &self.header.group
    }

    /// Dealers that are proven faulty, by a complaint or by an entry that they signed.
    pub fn excluded(&self) -> &BTreeSet<ServerIndex> {
        &self.excluded
    }

    /// New servers whose complaint was unfounded, or that signed an invalid entry.
    pub fn faulty(&self) -> &BTreeSet<ServerIndex> {
        &self.faulty
    }

    /// The voting key that a new server has registered.
    pub(crate) fn voting(&self, server: ServerIndex) -> Option<IdentityPublicKey> {
        self.voting.get(&server).copied()
    }

    /// The handover, if the key is shared by a polynomial.
    pub(crate) fn handover(&self) -> Option<&RunHandover> {
        self.handover.as_ref()
    }

    /// The new sharing by a polynomial, once the new epoch has begun.
    pub(crate) fn read_new_sharing(&self) -> Option<KeySharing> {
        let (sharing, _) = self.next.as_ref().and(self.new_sharing.as_ref())?;
        Some(sharing.clone())
    }

    /// Whether a new server has registered its session key.
    pub(crate) fn has_registered(&self, server: ServerIndex) -> bool {
        self.voting.contains_key(&server)
    }

    pub(crate) fn session_keys(&self) -> &BTreeMap<ServerIndex, SessionPoint> {
        &self.session_keys
    }

    /// The thesis's `write_proof`: stores the digest of a dealing's proofs. The new servers that
    /// confirm the proofs keep the proofs themselves.
    pub(super) fn write_proof(&mut self, manifest: &DealingManifest) {
        let proof = ProvedDealing { digest: manifest.digest(), confirmed_by: BTreeSet::new() };
        self.proofs.insert((manifest.dealer, manifest.round), proof);
    }

    /// The thesis's `read_proof`: the digest of a dealing's proofs, once it is written.
    pub(crate) fn read_proof(
        &self,
        dealer: ServerIndex,
        round: DealingRound,
    ) -> Option<Sha256Digest> {
        self.proofs.get(&(dealer, round)).map(|proof| proof.digest)
    }

    /// The thesis's `node_ok`: `signer` confirms a dealing. The first dealing of each label that
    /// 2f'+1 servers confirm is chosen.
    pub(super) fn node_ok(&mut self, manifest: &DealingManifest, signer: ServerIndex) {
        let quorum = self.header.group.combination().quorum();
        let proof = self.proofs.get_mut(&(manifest.dealer, manifest.round));
        let proof = proof.expect("the proof is written first");
        proof.confirmed_by.insert(signer);
        if proof.confirmed_by.len() == quorum {
            for label in manifest.labels() {
                self.chosen.entry(label).or_insert(proof.digest);
            }
        }
    }

    /// The digest of the dealing chosen for a label so far.
    pub(crate) fn chosen(&self, label: Label) -> Option<Sha256Digest> {
        self.chosen.get(&label).copied()
    }

    /// The thesis's `read_chosen`: the dealing chosen for each label t, in the order of the labels.
    /// `None` until all labels have one.
    pub(crate) fn read_chosen(&self, old: &CombinatorialSharing) -> Option<Vec<Sha256Digest>> {
        old.labels().map(|label| self.chosen(label)).collect()
    }

    /// The thesis's `read_new_witnesses`: the witnesses that 2f'+1 new servers computed.
    pub fn read_new_witnesses(&self) -> Option<&Arc<ShareWitnesses>> {
        self.witnesses.get(&self.next.as_ref()?.witnesses)
    }

    /// The header of the new epoch, once it has begun.
    pub fn next_epoch(&self) -> Option<&GroupHeader> {
        self.next.as_ref()
    }

    pub(crate) fn has_computed(&self, server: ServerIndex) -> bool {
        self.computed.contains_key(&server)
    }

    pub(super) fn proved(
        &mut self,
        manifest: &DealingManifest,
        confirmations: &[(ServerIndex, [u8; 64])],
    ) -> Result<LogEntryEffect, LogEntryRefusal> {
        let message = DealingManifest::confirmation(manifest.digest());
        let signers: BTreeSet<_> = confirmations.iter().map(|&(server, _)| server).collect();
        let is_quorum = signers.len() == self.header.group.combination().quorum()
            && signers.len() == confirmations.len();
        let is_signed = |(server, signature): &(ServerIndex, [u8; 64])| {
            self.header.group.verify(*server, &message, signature)
        };
        if !is_quorum || !confirmations.iter().all(is_signed) {
            return Err(LogEntryRefusal::Confirmations);
        }
        self.write_proof(manifest);
        for signer in signers {
            self.node_ok(manifest, signer);
        }
        Ok(LogEntryEffect::Counted)
    }

    pub(super) fn complaint(
        &mut self,
        by: ServerIndex,
        complaint: &Complaint,
        old: &QuorumGroup,
        parameters: &RefreshParameters,
    ) -> LogEntryEffect {
        let dealer = complaint.manifest.dealer;
        let new = self.header.group.combination();
        let holds = self.session_keys.get(&by).is_some_and(|key| {
            let complainant = Complainant { run: self.id, index: by, key, new };
            complaint::holds(complaint, &complainant, old, parameters)
        });
        if holds {
            self.excluded.insert(dealer);
            LogEntryEffect::DealerExcluded { dealer, by }
        } else {
            self.faulty.insert(by);
            LogEntryEffect::FalseComplaint { complainant: by }
        }
    }

    /// A new server has computed these witnesses at `time`. The epoch before began at `previous`.
    pub(super) fn computed(
        &mut self,
        server: ServerIndex,
        (witnesses, possession): (&[u8], &[u8]),
        (time, previous): (Option<UnixSeconds>, Option<UnixSeconds>),
        parameters: &RefreshParameters,
    ) -> Result<LogEntryEffect, LogEntryRefusal> {
        let new = self.header.group.combination();
        let digest = ShareWitnesses::digest_of(witnesses);
        let parsed = if let Some(known) = self.witnesses.get(&digest) {
            known.clone()
        } else {
            let parsed = ShareWitnesses::parse(witnesses, new.label_count(), &parameters.modulus);
            Arc::new(parsed.ok_or(LogEntryRefusal::Possession)?)
        };
        if !possession::verify(possession, self.id, server, &parsed, new, parameters) {
            return Err(LogEntryRefusal::Possession);
        }
        self.witnesses.entry(digest).or_insert(parsed);
        Ok(self.count_computed(server, digest, time, previous))
    }

    /// A server's step in a handover, with its voting key or at `time`.
    pub(super) fn hand_over(
        &mut self,
        author: ServerIndex,
        step: &EncodedHandoverStep,
        voting: Option<&VotingKey>,
        (time, previous): (Option<UnixSeconds>, Option<UnixSeconds>),
    ) -> Result<LogEntryEffect, LogEntryRefusal> {
        let handover = self.handover.as_mut().ok_or(LogEntryRefusal::OtherKey)?;
        let participant = author.participant().ok_or(LogEntryRefusal::Signature)?;
        match handover.apply(participant, step)? {
            HandoverEffect::AuthorFaulty { why: HandoverFault::Complaint } => {
                self.faulty.insert(author);
                return Ok(LogEntryEffect::FalseComplaint { complainant: author });
            }
            HandoverEffect::AuthorFaulty { why } => return Err(why.into()),
            HandoverEffect::DealerFaulty { dealer } => {
                let dealer = ServerIndex::of(dealer);
                self.excluded.insert(dealer);
                return Ok(LogEntryEffect::DealerExcluded { dealer, by: author });
            }
            HandoverEffect::Chosen => {
                let sharing = handover.sharing();
                self.new_sharing = sharing.map(|it| (it.clone(), it.digest()));
            }
            HandoverEffect::Counted | HandoverEffect::Final => {}
        }
        if let Some(voting) = voting {
            self.voting.insert(author, voting.key);
        }
        let has_share = step.header().kind == HandoverEntryKind::Confirm;
        match self.new_sharing.as_ref().filter(|_| has_share) {
            Some(&(_, digest)) => Ok(self.count_computed(author, digest, time, previous)),
            None => Ok(LogEntryEffect::Counted),
        }
    }

    /// Counts a server that has its shares. With 2f'+1 of them, the new epoch begins.
    fn count_computed(
        &mut self,
        server: ServerIndex,
        digest: Sha256Digest,
        time: Option<UnixSeconds>,
        previous: Option<UnixSeconds>,
    ) -> LogEntryEffect {
        let (group, size) = (&self.header.group, self.header.group.size());
        self.computed.insert(server, (digest, time));
        let same = self.computed.values().filter(|(computed, _)| *computed == digest);
        let times: Vec<_> = same.map(|&(_, time)| time).collect();
        if times.len() < size.quorum() {
            return LogEntryEffect::Counted;
        }
        let time = epoch_time(&times, size.faulty(), previous);
        let voting = group.servers().map(|server| self.voting.get(&server).copied()).collect();
        let (kind, witnesses) = (GroupHeaderKind::Epoch, digest);
        self.next = Some(GroupHeader { kind, voting, witnesses, time, ..self.header.clone() });
        LogEntryEffect::Final
    }
}

/// When an epoch begins, from the times of 2f'+1 of its servers, of which f' may be faulty: the
/// (f'+1)-th, which is neither before nor after the times of all correct ones. Headers are in order
/// even where clocks were set back. Servers without a time, which run an earlier version of this
/// program, come first.
fn epoch_time(
    times: &[Option<UnixSeconds>],
    faulty: usize,
    previous: Option<UnixSeconds>,
) -> Option<UnixSeconds> {
    let mut times = times.to_vec();
    times.sort_unstable();
    times.get(faulty).copied().flatten().max(previous)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// f faulty servers cannot move the time out of the range of the correct ones.
    #[test]
    fn faulty_servers_do_not_choose_the_time_of_an_epoch() {
        let at = |times: [u64; 3], before: Option<u64>| {
            epoch_time(&times.map(|it| Some(UnixSeconds(it))), 1, before.map(UnixSeconds))
                .map(|it| it.0)
        };
        for wrong in [0, 150, u64::MAX] {
            let time = at([wrong, 100, 200], None);
            assert!(time.is_some_and(|it| (100..=200).contains(&it)), "{wrong}: {time:?}");
        }
        assert_eq!(at([1, 2, 3], Some(50)), Some(50));
        let [one, two] = [1, 2].map(|it| Some(UnixSeconds(it)));
        assert_eq!(epoch_time(&[one, None, two], 1, None), one);
        assert_eq!(epoch_time(&[one, None, None], 1, None), None);
    }
}
