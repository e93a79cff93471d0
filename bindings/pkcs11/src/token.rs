//! A quorum's key and signatures.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cryptoki_sys::{
    CKR_DEVICE_ERROR, CKR_FUNCTION_REJECTED, CKR_GENERAL_ERROR, CKR_TOKEN_NOT_PRESENT,
};
use keys::AnyPublicKey;
use quorum::api::{ApiEncoding, GroupApiClient};

use crate::certificate;
use crate::config::TokenConfig;
use crate::object::{TokenObject, objects_of};
use crate::return_value::{CryptokiError, report};

/// How long the servers are not asked for the key again after they have not told it: programs ask
/// several times for the same.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// A token: the key of a quorum.
#[derive(Debug)]
pub struct QuorumToken {
    label: String,
    group: GroupApiClient,
    config: TokenConfig,
    known: Mutex<TokenState>,
}

#[derive(Debug)]
enum TokenState {
    /// The servers were not asked, or this long ago in vain.
    Unknown(Option<Instant>),
    Known(Box<QuorumTokenKey>),
}

/// The key of a token, with the objects that programs see.
#[derive(Clone, Debug)]
pub struct QuorumTokenKey {
    /// The public key.
    pub public: AnyPublicKey,
    /// The objects. The handle of each is its place, from 1.
    pub objects: Vec<TokenObject>,
}

impl QuorumToken {
    /// The token of a quorum. Asks nobody yet.
    pub fn new(config: TokenConfig) -> Self {
        let group = GroupApiClient::new(&config.sockets);
        let known = Mutex::new(TokenState::Unknown(None));
        Self { label: config.label.clone(), group, config, known }
    }

    /// The label, of 1 to 32 bytes.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// The key. A server is asked for it once.
    ///
    /// # Errors
    /// If no server answers, or the certificate is of another key. The reason is reported.
    pub fn key(&self) -> Result<QuorumTokenKey, CryptokiError> {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        match &*known {
            TokenState::Known(key) => return Ok((**key).clone()),
            TokenState::Unknown(Some(at)) if at.elapsed() < RETRY_DELAY => {
                return Err(CryptokiError(CKR_TOKEN_NOT_PRESENT));
            }
            TokenState::Unknown(_) => {}
        }
        match self.ask() {
            Ok(key) => {
                *known = TokenState::Known(Box::new(key.clone()));
                Ok(key)
            }
            Err(reason) => {
                report(&reason);
                *known = TokenState::Unknown(Some(Instant::now()));
                Err(CryptokiError(CKR_TOKEN_NOT_PRESENT))
            }
        }
    }

    fn ask(&self) -> Result<QuorumTokenKey, String> {
        let certificates =
            self.config.certificate.as_deref().map_or(Ok(vec![]), certificate::read)?;
        let check = |key: &AnyPublicKey| match certificates.first() {
            Some(own) if own.public_key != key.to_der() => {
                let path = self.config.certificate.as_deref().unwrap_or(Path::new(""));
                Err(format!(
                    "the first certificate in {} is not of the quorum's key",
                    path.display()
                ))
            }
            _ => Ok(()),
        };
        let runtime = runtime().map_err(|error| error.to_string())?;
        let asked = runtime.block_on(self.group.public_key(check));
        let public = asked.map_err(|error| error.to_string())?;
        let objects = objects_of(&self.label, &public, &certificates);
        Ok(QuorumTokenKey { public, objects })
    }

    /// The signature of a whole message of at most
    /// [`MAX_BODY_LEN`](quorum::api::MAX_BODY_LEN) bytes. The signature is verified.
    ///
    /// # Errors
    /// If the servers refuse, or none answers. The reason is reported.
    pub fn sign(
        &self,
        public: &AnyPublicKey,
        encoding: ApiEncoding,
        message: Vec<u8>,
    ) -> Result<Bytes, CryptokiError> {
        let message = Bytes::from(message);
        let runtime = runtime().map_err(|error| {
            report(&error);
            CryptokiError(CKR_GENERAL_ERROR)
        })?;
        let signed = runtime.block_on(self.group.sign(&message, encoding, Some(public)));
        signed.map_err(|error| {
            report(&error);
            let is_forbidden = error.is_forbidden();
            CryptokiError(if is_forbidden { CKR_FUNCTION_REJECTED } else { CKR_DEVICE_ERROR })
        })
    }
}

/// A runtime for one request, without threads of its own: a program may fork at any time.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
