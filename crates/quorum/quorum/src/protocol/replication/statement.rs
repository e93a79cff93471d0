//! What the group signs for a service, and the client's side: a request, and the verification of
//! its answer.

use encoding::{FieldReader, FieldWrite as _};
use keys::AnyPublicKey;
use random::{RandomError, RandomGenerator};

use super::{MAX_ANSWER_LEN, MAX_COMMAND_LEN, MAX_NAME_LEN, MAX_REQUEST_LEN, NONCE_LEN};
use super::{ServiceNameError, check_name};
use crate::protocol::log_types::Height;
use crate::protocol::wire::{MalformedEncoding, QuorumFields as _, Sha256Digest};

/// The first bytes of statements. Messages of users must not begin with them.
pub(crate) const SERVICE_MAGIC: [u8; 16] = *b"SNDR-QUORUM-SVC\0";

const ANSWER_KIND: u8 = 1;
const CHECKPOINT_KIND: u8 = 2;

/// The digest of a request to the service with this name.
pub(crate) fn request_digest(name: &str, request: &[u8]) -> Sha256Digest {
    let mut named = b"sunder-quorum request of a service v1\0".to_vec();
    named.put_counted(name.as_bytes());
    Sha256Digest::of(&[&named, request])
}

/// A statement about a service. A server helps to sign it if it knows that it is true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServiceStatement {
    pub(crate) name: String,
    pub(crate) body: ServiceStatementBody,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServiceStatementBody {
    /// A request was applied, with this answer.
    Answer(ServiceAnswer, Sha256Digest),
    /// After this height, the snapshot of the state has this digest.
    Checkpoint(Height, Sha256Digest),
}

/// A verified answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceAnswer {
    /// The epoch in which the request was applied.
    pub epoch: u64,
    /// The height of the log at which it was applied.
    pub height: Height,
    /// The state machine's answer.
    pub answer: Vec<u8>,
}

impl ServiceStatement {
    /// The message that the group signs.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut out = SERVICE_MAGIC.to_vec();
        let kind = match self.body {
            ServiceStatementBody::Answer(..) => ANSWER_KIND,
            ServiceStatementBody::Checkpoint(..) => CHECKPOINT_KIND,
        };
        out.push(kind);
        out.put_counted(self.name.as_bytes());
        match &self.body {
            ServiceStatementBody::Answer(answer, request) => {
                out.put_u64(answer.epoch);
                out.put_u64(answer.height.0);
                out.extend(request.0);
                out.extend(&answer.answer);
            }
            ServiceStatementBody::Checkpoint(height, digest) => {
                out.put_u64(height.0);
                out.extend(digest.0);
            }
        }
        out
    }

    /// Parses a statement.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        if reader.take()? != SERVICE_MAGIC {
            return Err(MalformedEncoding("not a statement about a service"));
        }
        let kind = reader.u8()?;
        let name = reader.counted_up_to(MAX_NAME_LEN)?;
        let name = str::from_utf8(name).ok().filter(|name| check_name(name).is_ok());
        let name = name.ok_or(MalformedEncoding("not the name of a service"))?.to_owned();
        let body = match kind {
            ANSWER_KIND => {
                let (epoch, height) = (reader.u64()?, Height(reader.u64()?));
                let request = reader.digest()?;
                let answer = reader.rest_up_to(MAX_ANSWER_LEN)?.to_vec();
                ServiceStatementBody::Answer(ServiceAnswer { epoch, height, answer }, request)
            }
            CHECKPOINT_KIND => {
                ServiceStatementBody::Checkpoint(Height(reader.u64()?), reader.digest()?)
            }
            _ => return Err(MalformedEncoding("unknown kind of statement")),
        };
        reader.finish()?;
        Ok(Self { name, body })
    }
}

/// A statement with its group's signature, as a server sends it to a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedServiceAnswer {
    /// The statement.
    pub statement: Vec<u8>,
    /// Its signature (PKCS #1 v1.5 with SHA-256).
    pub signature: Vec<u8>,
}

impl SignedServiceAnswer {
    /// The encoding.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        out.put_counted(&self.statement);
        out.put_counted(&self.signature);
        out
    }

    /// Parses a signed answer without verifying it.
    ///
    /// # Errors
    /// If the bytes are not exactly a signed answer.
    pub fn parse(bytes: &[u8]) -> Result<Self, MalformedEncoding> {
        let mut reader = FieldReader::new(bytes);
        let statement = reader.counted()?.to_vec();
        let signature = reader.counted()?.to_vec();
        reader.finish()?;
        Ok(Self { statement, signature })
    }
}

/// Why a client does not accept an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ServiceAnswerError {
    /// It is malformed.
    #[error("the answer is {0}")]
    Malformed(#[from] MalformedEncoding),
    /// The group has not signed it.
    #[error("the group has not signed the answer")]
    Signature,
    /// It belongs to another service or another request, possibly an earlier one.
    #[error("the answer is not to this request")]
    OtherRequest,
}

/// A client's request, with random bytes that make it different from all others.
#[derive(Clone, Debug)]
pub struct ServiceRequest {
    name: String,
    bytes: Vec<u8>,
}

/// Why a request cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum ServiceRequestError {
    /// The service's name is invalid.
    #[error(transparent)]
    Name(#[from] ServiceNameError),
    /// The command is too long.
    #[error("the command has {0} bytes, and can have {MAX_COMMAND_LEN}")]
    Length(usize),
    /// The operating system gives no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl ServiceRequest {
    /// A request with a command to the service with this name.
    ///
    /// # Errors
    /// If the name is invalid, the command is too long, or there are no random bytes.
    pub fn new(
        name: &str,
        command: &[u8],
        generator: &mut RandomGenerator,
    ) -> Result<Self, ServiceRequestError> {
        check_name(name)?;
        if command.len() > MAX_COMMAND_LEN {
            return Err(ServiceRequestError::Length(command.len()));
        }
        let nonce: [u8; NONCE_LEN] = generator.array()?;
        Ok(Self { name: name.to_owned(), bytes: [&nonce, command].concat() })
    }

    /// The bytes to send to a server.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Verifies an answer with the group's public key. It does not matter who has sent it.
    ///
    /// # Errors
    /// If it is not the group's answer to this request.
    pub fn verify(
        &self,
        public: &AnyPublicKey,
        answer: &[u8],
    ) -> Result<ServiceAnswer, ServiceAnswerError> {
        let signed = SignedServiceAnswer::parse(answer)?;
        if !public.verify(&signed.statement, &signed.signature) {
            return Err(ServiceAnswerError::Signature);
        }
        let statement = ServiceStatement::parse(&signed.statement)?;
        let own = request_digest(&self.name, &self.bytes);
        match statement.body {
            ServiceStatementBody::Answer(answer, request)
                if statement.name == self.name && request == own =>
            {
                Ok(answer)
            }
            _ => Err(ServiceAnswerError::OtherRequest),
        }
    }
}

/// Checks the length of a request from a client.
pub(crate) fn is_request(bytes: &[u8]) -> bool {
    (NONCE_LEN..=MAX_REQUEST_LEN).contains(&bytes.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn service_statements_round_trip(
            name in "[a-z]{1,64}",
            number: u64,
            digest: [u8; 32],
            answer in proptest::collection::vec(any::<u8>(), 0..40),
            noise in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let (height, digest) = (Height(number), Sha256Digest(digest));
            let answer = ServiceAnswer { epoch: 3, height, answer };
            for body in [
                ServiceStatementBody::Answer(answer, digest),
                ServiceStatementBody::Checkpoint(height, digest),
            ] {
                let statement = ServiceStatement { name: name.clone(), body };
                let bytes = statement.to_bytes();
                prop_assert_eq!(ServiceStatement::parse(&bytes), Ok(statement));
                prop_assert!(ServiceStatement::parse(&bytes[..16 + name.len()]).is_err());
            }
            // Any bytes are parsed or refused, and what is parsed has one encoding.
            let noise = [&SERVICE_MAGIC[..], &noise].concat();
            if let Ok(statement) = ServiceStatement::parse(&noise) {
                prop_assert_eq!(statement.to_bytes(), noise);
            }
        }
    }

    #[test]
    fn service_statement_is_specified() {
        let answer = ServiceAnswer { epoch: 2, height: Height(7), answer: b"yes".to_vec() };
        let body = ServiceStatementBody::Answer(answer, Sha256Digest([9; 32]));
        let statement = ServiceStatement { name: "kv".into(), body }.to_bytes();
        let expected = [
            &b"SNDR-QUORUM-SVC\0\x01\0\0\0\x02kv\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x07"[..],
            &[9; 32],
            b"yes",
        ];
        assert_eq!(statement, expected.concat());
    }
}
