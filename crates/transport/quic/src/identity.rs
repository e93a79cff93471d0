//! TLS 1.3 in which both ends prove Ed25519 identities with raw public keys (RFC 7250).

use std::io;
use std::sync::Arc;

use keys::{IdentityPublicKey, IdentitySecretKey};
use quinn_proto::crypto;
use quinn_proto::crypto::rustls::{QuicClientConfig, QuicServerConfig};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{AlwaysResolvesClientRawPublicKeys, Resumption};
use rustls::crypto::CryptoProvider;
use rustls::crypto::ring::{cipher_suite, default_provider};
use rustls::pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::server::{AlwaysResolvesServerRawPublicKeys, NoServerSessionStorage};
use rustls::sign::{CertifiedKey, Signer, SigningKey};
use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, DistinguishedName, Error,
    PeerMisbehaved, ServerConfig, SignatureAlgorithm, SignatureScheme, Tls13CipherSuite,
};

use crate::config::{QuicConfig, QuicPeerPolicy};
use crate::initial_keys::{self, InitialKeyDeriver};

/// The prefix of a 32-byte Ed25519 key in a `SubjectPublicKeyInfo` (RFC 8410, 4).
const SPKI_PREFIX: [u8; 12] =
    [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The application protocol (ALPN, RFC 7301).
const APPLICATION: &[u8] = b"sunder";

/// The client's side of handshakes.
pub(crate) fn client(config: &QuicConfig) -> io::Result<Arc<dyn crypto::ClientConfig>> {
    let tls = client_tls(config).map_err(io::Error::other)?;
    let tls = Arc::new(QuicClientConfig::try_from(tls).map_err(io::Error::other)?);
    let first = first_keys(config)?;
    Ok(first.map_or(tls.clone(), |first| Arc::new(initial_keys::KeyedTlsClient { tls, first })))
}

/// The listener's side of handshakes.
pub(crate) fn server(config: &QuicConfig) -> io::Result<Arc<dyn crypto::ServerConfig>> {
    let tls = server_tls(config).map_err(io::Error::other)?;
    let tls = Arc::new(QuicServerConfig::try_from(tls).map_err(io::Error::other)?);
    let first = first_keys(config)?;
    Ok(first.map_or(tls.clone(), |first| Arc::new(initial_keys::KeyedTlsServer { tls, first })))
}

fn first_keys(config: &QuicConfig) -> io::Result<Option<InitialKeyDeriver>> {
    let Some(listener) = config.listener else { return Ok(None) };
    let suite = cipher_suite::TLS13_AES_128_GCM_SHA256;
    let suite = suite.tls13().and_then(Tls13CipherSuite::quic_suite);
    let suite = suite.ok_or_else(|| io::Error::other("no cipher suite for QUIC"))?;
    Ok(Some(InitialKeyDeriver { listener, suite }))
}

fn client_tls(config: &QuicConfig) -> Result<ClientConfig, Error> {
    let mut tls = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(PeerVerifier(config.peers.clone())))
        .with_client_cert_resolver(Arc::new(AlwaysResolvesClientRawPublicKeys::new(own_key(
            &config.identity,
        ))));
    tls.alpn_protocols = vec![APPLICATION.to_vec()];
    tls.resumption = Resumption::disabled();
    tls.enable_sni = false;
    Ok(tls)
}

fn server_tls(config: &QuicConfig) -> Result<ServerConfig, Error> {
    let mut tls = ServerConfig::builder_with_provider(provider())
        .with_protocol_versions(&[&rustls::version::TLS13])?
        .with_client_cert_verifier(Arc::new(PeerVerifier(config.peers.clone())))
        .with_cert_resolver(Arc::new(AlwaysResolvesServerRawPublicKeys::new(own_key(
            &config.identity,
        ))));
    tls.alpn_protocols = vec![APPLICATION.to_vec()];
    tls.session_storage = Arc::new(NoServerSessionStorage {});
    tls.send_tls13_tickets = 0;
    Ok(tls)
}

/// The peer's key, from what the peer has presented and proved in the handshake.
pub(crate) fn peer_key(shown: &[CertificateDer<'_>]) -> Option<IdentityPublicKey> {
    parse(shown.first()?)
}

/// AES-128 first: it is the fastest on processors with AES instructions.
fn provider() -> Arc<CryptoProvider> {
    Arc::new(CryptoProvider {
        cipher_suites: vec![
            cipher_suite::TLS13_AES_128_GCM_SHA256,
            cipher_suite::TLS13_CHACHA20_POLY1305_SHA256,
        ],
        ..default_provider()
    })
}

fn encode(key: IdentityPublicKey) -> Vec<u8> {
    [&SPKI_PREFIX[..], &key.to_bytes()].concat()
}

fn parse(encoded: &[u8]) -> Option<IdentityPublicKey> {
    IdentityPublicKey::from_bytes(encoded.strip_prefix(&SPKI_PREFIX)?.try_into().ok()?).ok()
}

fn own_key(identity: &Arc<IdentitySecretKey>) -> Arc<CertifiedKey> {
    let shown = CertificateDer::from(encode(identity.public()));
    Arc::new(CertifiedKey::new(vec![shown], Arc::new(QuicSigningKey(identity.clone()))))
}

/// This end's key, which signs handshakes.
#[derive(Clone, Debug)]
struct QuicSigningKey(Arc<IdentitySecretKey>);

impl SigningKey for QuicSigningKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        let is_offered = offered.contains(&SignatureScheme::ED25519);
        is_offered.then(|| Box::new(self.clone()) as Box<dyn Signer>)
    }

    fn public_key(&self) -> Option<SubjectPublicKeyInfoDer<'_>> {
        Some(SubjectPublicKeyInfoDer::from(encode(self.0.public())))
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        SignatureAlgorithm::ED25519
    }
}

impl Signer for QuicSigningKey {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        Ok(self.0.sign(message).to_vec())
    }

    fn scheme(&self) -> SignatureScheme {
        SignatureScheme::ED25519
    }
}

/// Verifies the peer's key and its signature of the handshake.
#[derive(Debug)]
struct PeerVerifier(QuicPeerPolicy);

impl PeerVerifier {
    fn verify_key(&self, shown: &CertificateDer<'_>) -> Result<(), Error> {
        let key = parse(shown).ok_or(CertificateError::BadEncoding)?;
        let is_expected = match &self.0 {
            QuicPeerPolicy::Only(keys) => keys.contains(&key),
            QuicPeerPolicy::DangerAny => true,
        };
        if is_expected {
            Ok(())
        } else {
            Err(CertificateError::ApplicationVerificationFailure.into())
        }
    }

    fn verify_signature(
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let signature = signed.signature().try_into().ok();
        let is_right = signed.scheme == SignatureScheme::ED25519
            && parse(shown)
                .zip(signature)
                .is_some_and(|(key, signature)| key.verify(message, signature));
        if is_right {
            Ok(HandshakeSignatureValid::assertion())
        } else {
            Err(CertificateError::BadSignature.into())
        }
    }
}

/// Never called, as only TLS 1.3 is enabled.
fn refuse_tls12() -> Result<HandshakeSignatureValid, Error> {
    Err(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme.into())
}

impl ServerCertVerifier for PeerVerifier {
    fn verify_server_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        self.verify_key(shown).map(|()| ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::verify_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}

impl ClientCertVerifier for PeerVerifier {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_client_cert(
        &self,
        shown: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.verify_key(shown).map(|()| ClientCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _message: &[u8],
        _shown: &CertificateDer<'_>,
        _signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        refuse_tls12()
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        shown: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Self::verify_signature(message, shown, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        vec![SignatureScheme::ED25519]
    }

    fn requires_raw_public_keys(&self) -> bool {
        true
    }
}
