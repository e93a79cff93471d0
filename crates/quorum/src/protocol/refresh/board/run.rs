//! An open run of a refresh.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use keys::PublicKey;

use super::super::complaint::{self, Complainant};
use super::super::entry::Complaint;
use super::super::manifest::{Manifest, Round};
use super::super::parameters::Parameters;
use super::super::possession::{self, Witnesses};
use super::super::session::SessionPoint;
use super::{Change, Refusal};
use crate::protocol::combination::{Combination, Label, ServerIndex};
use crate::protocol::group::{Group, Header, HeaderKind};
use crate::protocol::wire::Digest;

/// An open run of a refresh.
#[derive(Clone)]
pub struct Run {
    pub(super) header: Header,
    pub(super) id: Digest,
    pub(super) session_keys: BTreeMap<ServerIndex, SessionPoint>,
    /// The voting keys of the epoch that is to begin.
    pub(super) voting: BTreeMap<ServerIndex, PublicKey>,
    /// The dealings whose digests were written, with the new servers that confirmed them.
    pub(super) proofs: BTreeMap<(ServerIndex, Round), Proof>,
    /// The digest of the dealing chosen for each label.
    pub(super) chosen: BTreeMap<Label, Digest>,
    pub(super) excluded: BTreeSet<ServerIndex>,
    pub(super) faulty: BTreeSet<ServerIndex>,
    pub(super) computed: BTreeMap<ServerIndex, Digest>,
    pub(super) witnesses: BTreeMap<Digest, Arc<Witnesses>>,
    /// The header of the new epoch, once 2f'+1 new servers have the same witnesses.
    pub(super) next: Option<Header>,
}

#[derive(Clone, Debug)]
pub(super) struct Proof {
    pub(super) digest: Digest,
    pub(super) confirmed_by: BTreeSet<ServerIndex>,
}

impl Run {
    pub(super) fn new(header: Header) -> Self {
        Self {
            id: header.digest(),
            header,
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
    pub fn id(&self) -> Digest {
        self.id
    }

    /// The refresh header.
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// The new group.
    pub fn group(&self) -> &Group {
        &self.header.group
    }

    /// Dealers that are proven faulty: by a complaint, or by what they have signed.
    pub fn excluded(&self) -> &BTreeSet<ServerIndex> {
        &self.excluded
    }

    /// New servers that complained without reason, or signed a wrong entry.
    pub fn faulty(&self) -> &BTreeSet<ServerIndex> {
        &self.faulty
    }

    /// The voting key that a new server has registered.
    pub(crate) fn voting(&self, server: ServerIndex) -> Option<PublicKey> {
        self.voting.get(&server).copied()
    }

    pub(crate) fn session_keys(&self) -> &BTreeMap<ServerIndex, SessionPoint> {
        &self.session_keys
    }

    /// The thesis's `write_proof`: stores the digest of a dealing's proofs. The proofs themselves
    /// are with the new servers that confirm them.
    pub(super) fn write_proof(&mut self, manifest: &Manifest) {
        let proof = Proof { digest: manifest.digest(), confirmed_by: BTreeSet::new() };
        self.proofs.insert((manifest.dealer, manifest.round), proof);
    }

    /// The thesis's `read_proof`: the digest of a dealing's proofs, once it is written.
    pub(crate) fn read_proof(&self, dealer: ServerIndex, round: Round) -> Option<Digest> {
        self.proofs.get(&(dealer, round)).map(|proof| proof.digest)
    }

    /// The thesis's `node_ok`: `signer` confirms a dealing. The first dealing of each label that
    /// 2f'+1 servers confirm is chosen.
    pub(super) fn node_ok(&mut self, manifest: &Manifest, signer: ServerIndex) {
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
    pub(crate) fn chosen(&self, label: Label) -> Option<Digest> {
        self.chosen.get(&label).copied()
    }

    /// The thesis's `read_chosen`: the dealing chosen for each label t, in the order of labels,
    /// once all labels have one.
    pub(crate) fn read_chosen(&self, old: &Combination) -> Option<Vec<Digest>> {
        old.labels().map(|label| self.chosen(label)).collect()
    }

    /// The thesis's `read_new_witnesses`: the witnesses that 2f'+1 new servers computed.
    pub fn read_new_witnesses(&self) -> Option<&Arc<Witnesses>> {
        self.witnesses.get(&self.next.as_ref()?.witnesses)
    }

    /// The header of the new epoch, once it has begun.
    pub fn next_epoch(&self) -> Option<&Header> {
        self.next.as_ref()
    }

    pub(crate) fn has_computed(&self, server: ServerIndex) -> bool {
        self.computed.contains_key(&server)
    }

    pub(super) fn proved(
        &mut self,
        manifest: &Manifest,
        confirmations: &[(ServerIndex, [u8; 64])],
    ) -> Result<Change, Refusal> {
        let message = Manifest::confirmation(manifest.digest());
        let signers: BTreeSet<_> = confirmations.iter().map(|&(server, _)| server).collect();
        let is_quorum = signers.len() == self.header.group.combination().quorum()
            && signers.len() == confirmations.len();
        let is_signed = |(server, signature): &(ServerIndex, [u8; 64])| {
            self.header.group.verify(*server, &message, signature)
        };
        if !is_quorum || !confirmations.iter().all(is_signed) {
            return Err(Refusal::Confirmations);
        }
        self.write_proof(manifest);
        for signer in signers {
            self.node_ok(manifest, signer);
        }
        Ok(Change::Counted)
    }

    pub(super) fn complaint(
        &mut self,
        by: ServerIndex,
        complaint: &Complaint,
        old: &Group,
        parameters: &Parameters,
    ) -> Change {
        let dealer = complaint.manifest.dealer;
        let new = self.header.group.combination();
        let holds = self.session_keys.get(&by).is_some_and(|key| {
            let complainant = Complainant { run: self.id, index: by, key, new };
            complaint::holds(complaint, &complainant, old, parameters)
        });
        if holds {
            self.excluded.insert(dealer);
            Change::DealerExcluded { dealer, by }
        } else {
            self.faulty.insert(by);
            Change::FalseComplaint { complainant: by }
        }
    }

    pub(super) fn computed(
        &mut self,
        server: ServerIndex,
        witnesses: &[u8],
        possession: &[u8],
        parameters: &Parameters,
    ) -> Result<Change, Refusal> {
        let new = self.header.group.combination();
        let digest = Witnesses::digest_of(witnesses);
        let parsed = if let Some(known) = self.witnesses.get(&digest) {
            known.clone()
        } else {
            let parsed = Witnesses::parse(witnesses, new.label_count(), &parameters.modulus);
            Arc::new(parsed.ok_or(Refusal::Possession)?)
        };
        if !possession::verify(possession, self.id, server, &parsed, new, parameters) {
            return Err(Refusal::Possession);
        }
        self.computed.insert(server, digest);
        self.witnesses.entry(digest).or_insert(parsed);
        let same = self.computed.values().filter(|&&computed| computed == digest).count();
        if same < new.quorum() {
            return Ok(Change::Counted);
        }
        let voting = new.servers().map(|server| self.voting.get(&server).copied()).collect();
        let (kind, witnesses) = (HeaderKind::Epoch, digest);
        self.next = Some(Header { kind, voting, witnesses, ..self.header.clone() });
        Ok(Change::Final)
    }
}
