//! A quorum's key and signatures.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use cryptoki_sys::{
    CKR_DATA_LEN_RANGE, CKR_DEVICE_ERROR, CKR_FUNCTION_REJECTED, CKR_GENERAL_ERROR,
    CKR_TOKEN_NOT_PRESENT,
};
use keys::RsaPublicKey;
use keys::rsa::RsaEncoding;
use quorum::api::{ApiEncoding, GroupApiClient, MAX_BODY_LEN};

use crate::certificate::{self, TokenCertificate};
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
    Known(QuorumTokenKey),
}

/// The key of a token, with the objects that programs see.
#[derive(Clone, Debug)]
pub struct QuorumTokenKey {
    /// The public key.
    pub public: RsaPublicKey,
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
            TokenState::Known(key) => return Ok(key.clone()),
            TokenState::Unknown(Some(at)) if at.elapsed() < RETRY_DELAY => {
                return Err(CryptokiError(CKR_TOKEN_NOT_PRESENT));
            }
            TokenState::Unknown(_) => {}
        }
        match self.ask() {
            Ok(key) => {
                *known = TokenState::Known(key.clone());
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
        let runtime = runtime().map_err(|error| error.to_string())?;
        let asked = runtime.block_on(self.group.public_key());
        let public = asked.map_err(|error| error.to_string())?;
        let certificates = self.config.certificate.as_deref().map_or(Ok(vec![]), |path| {
            let read = certificate::read(path)?;
            let is_of_key = |first: &TokenCertificate| first.public_key == public.to_der();
            if read.first().is_some_and(is_of_key) {
                Ok(read)
            } else {
                Err(format!(
                    "the first certificate in {} is not of the quorum's key",
                    path.display()
                ))
            }
        })?;
        let objects = objects_of(&self.label, &public, &certificates);
        Ok(QuorumTokenKey { public, objects })
    }

    /// The signature of a whole message, as long as the modulus, which is verified.
    ///
    /// # Errors
    /// If the servers refuse, or none answers. The reason is reported.
    pub fn sign(
        &self,
        public: &RsaPublicKey,
        encoding: ApiEncoding,
        message: Vec<u8>,
    ) -> Result<Bytes, CryptokiError> {
        if message.len() > MAX_BODY_LEN {
            report(&format_args!("the message has more than {MAX_BODY_LEN} bytes"));
            return Err(CryptokiError(CKR_DATA_LEN_RANGE));
        }
        let message = Bytes::from(message);
        let runtime = runtime().map_err(|error| {
            report(&error);
            CryptokiError(CKR_GENERAL_ERROR)
        })?;
        let signed = runtime.block_on(self.group.sign(message.clone(), encoding));
        let signature = signed.map_err(|error| {
            report(&error);
            let is_forbidden = error.is_forbidden();
            CryptokiError(if is_forbidden { CKR_FUNCTION_REJECTED } else { CKR_DEVICE_ERROR })
        })?;
        let is_right = match encoding {
            ApiEncoding::Pkcs1Sha512 => {
                public.verify_encoding(&RsaEncoding::Pkcs1Sha512, &message, &signature)
            }
            ApiEncoding::Pkcs1 | ApiEncoding::Pss => public.verify(&message, &signature),
        };
        if !is_right {
            report(&"a server has returned a signature that is not of the quorum's key");
            return Err(CryptokiError(CKR_DEVICE_ERROR));
        }
        Ok(signature)
    }
}

/// A runtime for one request, without threads of its own: a program may fork at any time.
fn runtime() -> std::io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()
}
