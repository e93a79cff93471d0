//! Verifies signatures by the program openssl, or by Sunder itself if that is not installed.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Output, Stdio};

use console::CommandFailure;
use keys::RsaPublicKey;
use rustix::io::{FdFlags, fcntl_setfd};

use crate::scratch;

/// Verifies signatures of one file under one key.
pub(super) struct DemoSignatureVerifier<'a> {
    key: &'a RsaPublicKey,
    message: &'a [u8],
    openssl: Option<OpensslVerifier>,
}

/// The program. Its input is in files without a name, of which nothing remains however the
/// demonstration ends.
struct OpensslVerifier {
    version: String,
    key: File,
    message: File,
}

impl<'a> DemoSignatureVerifier<'a> {
    /// A verifier, by openssl if it is installed.
    ///
    /// # Errors
    /// If temporary files cannot be written.
    pub(super) fn new(key: &'a RsaPublicKey, message: &'a [u8]) -> Result<Self, CommandFailure> {
        let version = Command::new("openssl").arg("version").output();
        let version = version.ok().filter(|output| output.status.success());
        let openssl = match version {
            Some(version) => Some(OpensslVerifier {
                version: first_line(&version.stdout),
                key: inherited(key.to_pem().as_bytes())?,
                message: inherited(message)?,
            }),
            None => None,
        };
        Ok(Self { key, message, openssl })
    }

    /// The version of openssl; None if it is not installed.
    pub(super) fn openssl(&self) -> Option<&str> {
        self.openssl.as_ref().map(|openssl| &openssl.version[..])
    }

    /// Whether a signature is that of the file.
    ///
    /// # Errors
    /// If openssl cannot be run.
    pub(super) fn verify(&self, signature: &[u8]) -> Result<bool, CommandFailure> {
        let Some(openssl) = &self.openssl else {
            return Ok(self.key.verify(self.message, signature));
        };
        let signature = inherited(signature)?;
        let output = openssl.run(&signature);
        let output = output
            .map_err(|error| CommandFailure::Failed(format!("cannot run openssl: {error}")))?;
        Ok(output.status.success() && first_line(&output.stdout) == "Verified OK")
    }
}

impl OpensslVerifier {
    fn run(&self, signature: &File) -> io::Result<Output> {
        let path = |file: &File| format!("/dev/fd/{}", file.as_raw_fd());
        let mut command = Command::new("openssl");
        command.args(["dgst", "-sha256", "-verify"]).arg(path(&self.key));
        command.arg("-signature").arg(path(signature)).arg(path(&self.message));
        command.stdin(Stdio::null()).output()
    }
}

/// A temporary file with this content that the programs inherit which this one starts.
fn inherited(content: &[u8]) -> Result<File, CommandFailure> {
    let mut file = scratch::file()?;
    let written = file.write_all(content).and_then(|()| file.rewind());
    written.map_err(|error| scratch::writing(&error))?;
    fcntl_setfd(&file, FdFlags::empty()).map_err(|error| scratch::writing(&error.into()))?;
    Ok(file)
}

/// The first line of what openssl printed, without the version of its library in parentheses.
fn first_line(output: &[u8]) -> String {
    let output = String::from_utf8_lossy(output);
    let line = output.lines().next().unwrap_or_default();
    line.split(" (").next().unwrap_or_default().trim().to_owned()
}

#[cfg(test)]
mod tests {
    use keys::rsa::RsaEncoding;
    use quorum::in_process::GroupKeyParameters;
    use quorum::signing::SignerHealth;
    use quorum::{CombinatorialSharing, DealerKey, ShareRange};
    use random::RandomGenerator;

    use super::*;

    #[test]
    fn only_the_signature_of_the_file_is_accepted() {
        let mut generator = RandomGenerator::seeded().unwrap();
        let dealer = DealerKey::generate(1024, &mut generator).unwrap();
        let combination = CombinatorialSharing::new(1).unwrap();
        let setting = GroupKeyParameters::new(dealer.group(), ShareRange::new(1024));
        let group = setting.deal(&dealer, &combination, &mut generator).unwrap();
        let sign = |message: &[u8]| {
            let mut health = SignerHealth::new(&combination);
            let servers = group.signing_servers(&setting);
            servers.sign(message, RsaEncoding::Pkcs1, &mut health, &[]).unwrap().signature.unwrap()
        };
        let right = sign(b"a message");
        let mut changed = right.clone();
        changed[5] ^= 1;
        let key = dealer.group().public();
        let with_openssl = DemoSignatureVerifier::new(key, b"a message").unwrap();
        assert!(with_openssl.openssl().is_some());
        for verifier in
            [with_openssl, DemoSignatureVerifier { key, message: b"a message", openssl: None }]
        {
            assert!(verifier.verify(&right).unwrap());
            for wrong in [&sign(b"another message"), &changed, &right[1..].to_vec(), &Vec::new()] {
                assert!(!verifier.verify(wrong).unwrap());
            }
        }
    }
}
