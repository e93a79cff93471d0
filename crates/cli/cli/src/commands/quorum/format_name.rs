//! The formats of signatures as options name them.

use clap::ValueEnum;
use console::CommandFailure;
use formats::SignatureFormat;
use formats::openpgp::OpenPgpMessage;
use keys::AnyPublicKey;

/// The value of `--format`.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub(super) enum SignatureFormatName {
    /// The bytes of the signature of any file
    Raw,
    /// A certification request (PKCS #10), in PEM
    X509Csr,
    /// A certificate, in PEM
    X509Cert,
    /// A detached signature (PKCS #7), in DER
    Cms,
    /// A detached or cleartext signature, in armor: RSA keys only
    Openpgp,
    /// The group's key with a user ID, in armor: RSA keys only
    OpenpgpKey,
    /// A JSON Web Token: RS256, PS256 or EdDSA
    Jwt,
    /// A commit or tag of git, as a detached OpenPGP signature: RSA keys only
    Git,
}

impl SignatureFormatName {
    /// The format of the messages.
    pub(super) fn format(self) -> SignatureFormat {
        match self {
            Self::Raw => SignatureFormat::Raw,
            Self::X509Csr => SignatureFormat::X509Csr,
            Self::X509Cert => SignatureFormat::X509Cert,
            Self::Cms => SignatureFormat::Cms,
            Self::Openpgp | Self::Git => SignatureFormat::OpenPgp,
            Self::OpenpgpKey => SignatureFormat::OpenPgpKey,
            Self::Jwt => SignatureFormat::Jwt,
        }
    }

    /// The ending of the files that are written.
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Raw => "sig",
            Self::X509Csr => "csr",
            Self::X509Cert => "crt",
            Self::Cms => "p7s",
            Self::Openpgp | Self::OpenpgpKey | Self::Git => "asc",
            Self::Jwt => "jwt",
        }
    }

    /// One line that says what a signature of a message means.
    ///
    /// # Errors
    /// If it is a message of another format.
    pub(super) fn describe(self, name: &str, message: &[u8]) -> Result<String, CommandFailure> {
        let wrong = |why: String| CommandFailure::Usage(format!("{name}: {why}"));
        let line = self.format().describe(message).map_err(|error| wrong(error.to_string()))?;
        let is_object =
            |content: &[u8]| content.starts_with(b"object ") || content.starts_with(b"tree ");
        if self == Self::Git
            && !OpenPgpMessage::parse(message).is_ok_and(|it| is_object(it.content))
        {
            return Err(wrong("this is not what is signed in a commit or tag of git".into()));
        }
        Ok(line)
    }

    /// Checks that a signature of a message by this key has a form.
    ///
    /// # Errors
    /// If the message is to be signed by another key.
    pub(super) fn check_key(
        self,
        name: &str,
        message: &[u8],
        key: &AnyPublicKey,
    ) -> Result<(), CommandFailure> {
        let checked = self.format().check_key(message, key);
        checked.map_err(|error| CommandFailure::Usage(format!("{name}: {error}")))
    }
}
