//! The first frame of a connection.

use crate::error::Error;
use crate::malformed::MalformedComputeFrame;
use crate::settings::transfers_number;
use crate::settings::{ComputeProtocol, ComputeRole, ComputeSecurity, ComputeSettings};
use ot::extension::OtExtension;

const MAGIC: &[u8; 7] = b"SNDRYAO";
const VERSION: u8 = 1;

/// A party's first frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ComputeHello {
    pub(crate) role: ComputeRole,
    pub(crate) protocol: ComputeProtocol,
    pub(crate) security: ComputeSecurity,
    pub(crate) transfers: OtExtension,
}

impl ComputeHello {
    pub(crate) const LEN: usize = 16;

    pub(crate) fn new(role: ComputeRole, settings: &ComputeSettings) -> Self {
        let (security, transfers) = (settings.security(), settings.extension());
        Self { role, protocol: settings.protocol, security, transfers }
    }

    pub(crate) fn to_bytes(self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..7].copy_from_slice(MAGIC);
        bytes[7] = VERSION;
        bytes[8] = self.role as u8;
        bytes[9] = transfers_number(self.transfers);
        bytes[10] = self.protocol as u8;
        bytes[11] = self.security as u8;
        bytes
    }

    /// Parses the other party's frame, and compares it with this one.
    ///
    /// # Errors
    /// If it is malformed or does not match.
    pub(crate) fn check(self, theirs: &[u8]) -> Result<(), Error> {
        if theirs.len() < 8 || theirs[..7] != *MAGIC {
            return Err(Error::NotThisProtocol);
        }
        if theirs[7] != VERSION {
            return Err(Error::Version { ours: VERSION, theirs: theirs[7] });
        }
        if theirs.len() != Self::LEN {
            let length = theirs.len();
            return Err(MalformedComputeFrame::Length {
                kind: "hello",
                length,
                expected: Self::LEN,
            }
            .into());
        }
        if ComputeRole::parse(theirs[8])? == self.role {
            return Err(Error::SameRole { role: self.role });
        }
        if theirs[10] != self.protocol as u8 {
            return Err(Error::Differs { what: "the protocol (--protocol)" });
        }
        let security = ComputeSecurity::parse(theirs[11])?;
        if security != self.security {
            return Err(Error::Security { ours: self.security, theirs: security });
        }
        if theirs[9] != transfers_number(self.transfers) {
            return Err(Error::Differs { what: "the kind of oblivious transfers (--transfers)" });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(role: ComputeRole) -> ComputeHello {
        ComputeHello::new(role, &ComputeSettings::default())
    }

    #[test]
    fn the_roles_differ() {
        let [garbler, evaluator] = [ComputeRole::Garbler, ComputeRole::Evaluator].map(hello);
        garbler.check(&evaluator.to_bytes()).unwrap();
        evaluator.check(&garbler.to_bytes()).unwrap();
        let error = garbler.check(&garbler.to_bytes()).unwrap_err();
        assert!(matches!(error, Error::SameRole { role: ComputeRole::Garbler }));
    }

    #[test]
    fn hello_mismatches_are_named() {
        let good = hello(ComputeRole::Evaluator).to_bytes();
        let text = |bytes: &[u8]| hello(ComputeRole::Garbler).check(bytes).unwrap_err().to_string();
        let with = |at: usize, value| {
            let mut bytes = good;
            bytes[at] = value;
            text(&bytes)
        };
        assert!(text(b"GET / HTTP/1.1").contains("does not speak"));
        assert!(text(b"").contains("does not speak"));
        assert!(with(7, 2).contains("version 2"));
        assert!(with(8, 9).contains("role"));
        assert!(with(9, 2).contains("transfers"));
        assert!(with(10, 1).contains("--protocol"));
        assert!(with(11, 0).contains("the other party has --security semi-honest"));
        assert!(with(11, 2).contains("the other party has --security malicious"));
        assert!(with(11, 3).contains("level of security"));
        assert!(text(&good[..15]).contains("15 bytes"));
    }
}
