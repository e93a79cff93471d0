//! Whole groups in one process, with links and a log that lose nothing, for demonstrations,
//! benchmarks, the laboratory and tests. A process with all shares can compute the key, so do not
//! use this with a key that matters.
//!
//! Two groups, one after the other, sign under the same public key:
//!
//! ```
//! use keys::rsa::RsaEncoding;
//! use random::RandomGenerator;
//! use sunder_quorum::in_process::GroupKeyParameters;
//! use sunder_quorum::signing::SignerHealth;
//! use sunder_quorum::{CombinatorialSharing, DealerKey, ShareRange};
//!
//! // A key that no server has. (1024 bits are too few to be secure.)
//! let mut generator = RandomGenerator::seeded()?;
//! let key = DealerKey::generate(1024, &mut generator)?;
//! let setting = GroupKeyParameters::new(key.group(), ShareRange::new(1024));
//! let four = CombinatorialSharing::new(1)?;
//! let old = setting.deal(&key, &four, &mut generator)?;
//!
//! // Of seven other servers, up to two may be faulty. The old ones wipe their shares.
//! let seven = CombinatorialSharing::new(2)?;
//! let (new, report) = old.refresh(&setting, &seven, &mut generator)?;
//! println!("the refresh took {:?}", report.took());
//!
//! // Two of the seven do not answer.
//! let servers: Vec<_> = seven.servers().collect();
//! let mut health = SignerHealth::new(&seven);
//! let message = b"addresses: 192.0.2.1";
//! let signing = new.signing_servers(&setting);
//! let signed = signing.sign(message, RsaEncoding::Pkcs1, &mut health, &servers[..2])?;
//! let signature = signed.signature.expect("f+1 servers suffice");
//! assert!(key.group().public().verify(message, &signature));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod processor_time;
mod refreshing;
mod signing;
mod workers;

#[cfg(test)]
mod tests;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::SystemTime;

use keys::{IdentitySecretKey, KEY_LEN};
use random::{RandomError, RandomGenerator};
use rsa_arithmetic::dealer::DealerKey;
use rsa_arithmetic::key::GroupPublicKey;
use zeroize::Zeroizing;

use crate::protocol::combination::{CombinatorialSharing, Label, ServerIndex};
use crate::protocol::group::{GroupHeader, QuorumGroup, QuorumMember};
use crate::protocol::refresh::{LabeledShares, RefreshParameters, ShareWitnesses};
use crate::protocol::share::ShareRange;
use crate::protocol::signing::{SigningGroup, SigningShares};
use crate::protocol::unix_seconds::UnixSeconds;

pub use processor_time::measured;
pub use refreshing::{RefreshProcessorTime, RefreshReport, ServerRefreshReport};
pub use signing::{SignReport, SigningServers};

/// The parameters that all groups of a key share.
pub struct GroupKeyParameters {
    key: GroupPublicKey,
    range: ShareRange,
    parameters: Arc<RefreshParameters>,
}

/// A group with the identities and shares of all its servers.
pub struct InProcessGroup {
    group: QuorumGroup,
    identities: Vec<Arc<IdentitySecretKey>>,
    shares: Vec<Arc<LabeledShares>>,
    header: GroupHeader,
    witnesses: Arc<ShareWitnesses>,
}

/// The number and length of what a server has sent.
#[derive(Clone, Copy, Debug, Default)]
pub struct SentVolume {
    /// The number of messages or entries.
    pub count: usize,
    /// Their total length.
    pub bytes: usize,
}

impl SentVolume {
    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }
}

impl GroupKeyParameters {
    /// The parameters of a key, with the range of its shares.
    pub fn new(key: &GroupPublicKey, range: ShareRange) -> Self {
        let parameters = Arc::new(RefreshParameters::new(key, range));
        Self { key: key.clone(), range, parameters }
    }

    /// The first group of a key, with shares from a dealer.
    ///
    /// # Errors
    /// If the operating system provides no random bytes.
    pub fn deal(
        &self,
        key: &DealerKey,
        combination: &CombinatorialSharing,
        generator: &mut RandomGenerator,
    ) -> Result<InProcessGroup, RandomError> {
        let split = self.range.split(key.private_exponent(), combination, generator)?;
        let (group, identities) = members(combination, generator)?;
        let share = |label: Label| (label, split.share(label));
        let held = |server| Arc::new(combination.labels_of(server).map(share).collect());
        let shares = combination.servers().map(held).collect();
        let power = |label| self.parameters.power(&split.share(label));
        let witnesses = Arc::new(ShareWitnesses::new(combination.labels().map(power).collect()));
        let header = GroupHeader::first(
            group.clone(),
            vec![None; group.members().len()],
            witnesses.digest(),
            Some(UnixSeconds::from_system(SystemTime::now())),
        );
        Ok(InProcessGroup { group, identities, shares, header, witnesses })
    }
}

impl InProcessGroup {
    /// Which server holds which shares.
    pub fn combination(&self) -> &CombinatorialSharing {
        self.group.combination()
    }

    /// The header of its epoch, which the group signs.
    pub fn header(&self) -> &GroupHeader {
        &self.header
    }

    /// The shares of a server.
    ///
    /// # Panics
    /// If there is no such server.
    pub fn shares(&self, server: ServerIndex) -> &Arc<LabeledShares> {
        &self.shares[usize::from(server.0)]
    }

    /// The witnesses of all shares.
    pub fn witnesses(&self) -> &ShareWitnesses {
        &self.witnesses
    }

    /// The servers in their role as signers.
    ///
    /// # Panics
    /// If a server lacks a share.
    pub fn signing_servers(&self, setting: &GroupKeyParameters) -> SigningServers {
        let group = Arc::new(SigningGroup {
            epoch: self.header.epoch,
            key: setting.key.clone(),
            combination: self.combination().clone(),
            identities: self.identities.iter().map(|identity| identity.public()).collect(),
        });
        let server = |(index, identity): (ServerIndex, &Arc<IdentitySecretKey>)| {
            let shares = self.shares(index).iter();
            let shares = shares.map(|(label, share)| (*label, share.clone())).collect();
            let shares = SigningShares::new(group.clone(), index, setting.range, shares);
            (shares.expect("a server has its shares"), identity.clone())
        };
        let servers = self.combination().servers().zip(&self.identities).map(server).collect();
        SigningServers::new(group, servers)
    }
}

/// A group of new identities. Its addresses are not used.
fn members(
    combination: &CombinatorialSharing,
    generator: &mut RandomGenerator,
) -> Result<(QuorumGroup, Vec<Arc<IdentitySecretKey>>), RandomError> {
    let identity = |_| {
        let random = Zeroizing::new(generator.array::<KEY_LEN>()?);
        Ok(Arc::new(IdentitySecretKey::new(&random)))
    };
    let identities = combination.servers().map(identity);
    let identities = identities.collect::<Result<Vec<_>, RandomError>>()?;
    let member = |(server, identity): (ServerIndex, &Arc<IdentitySecretKey>)| QuorumMember {
        identity: identity.public(),
        address: SocketAddr::from((Ipv4Addr::LOCALHOST, 1 + u16::from(server.0))),
    };
    let members = combination.servers().zip(&identities).map(member).collect();
    Ok((QuorumGroup::new(members).expect("new identities differ"), identities))
}
