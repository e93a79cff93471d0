//! The server's end of TLS 1.3, by rustls.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

/// The time within which a handshake must be done.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The files of a certificate and its key, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, and those between it and the root.
    pub certificate: PathBuf,
    /// Its private key.
    pub key: PathBuf,
}

/// Accepts TLS connections.
pub(crate) struct TlsServer {
    files: TlsFiles,
    config: RwLock<Arc<ServerConfig>>,
}

impl TlsServer {
    /// Reads the files.
    ///
    /// # Errors
    /// If they cannot be read, or do not belong to each other.
    pub(crate) fn open(files: TlsFiles) -> io::Result<Self> {
        let config = RwLock::new(read(&files)?);
        Ok(Self { files, config })
    }

    /// Reads the files again. Connections that are open keep the old certificate.
    ///
    /// # Errors
    /// As [`TlsServer::open`]. The old certificate is then kept.
    pub(crate) fn reload(&self) -> io::Result<()> {
        let config = read(&self.files)?;
        *self.config.write().unwrap_or_else(PoisonError::into_inner) = config;
        Ok(())
    }

    /// The encrypted connection on a stream; `None` if the client is too slow or speaks no TLS.
    pub(crate) async fn accept(&self, stream: TcpStream) -> Option<TlsStream<TcpStream>> {
        let config = Arc::clone(&self.config.read().unwrap_or_else(PoisonError::into_inner));
        let accepting = TlsAcceptor::from(config).accept(stream);
        timeout(HANDSHAKE_TIMEOUT, accepting).await.ok()?.ok()
    }
}

fn read(files: &TlsFiles) -> io::Result<Arc<ServerConfig>> {
    let unusable = |path: &Path| {
        let path = path.display().to_string();
        move |error: &dyn std::fmt::Display| io::Error::other(format!("{path}: {error}"))
    };
    let of_certificate = unusable(&files.certificate);
    let certificates = CertificateDer::pem_file_iter(&files.certificate)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| of_certificate(&error))?;
    let key =
        PrivateKeyDer::from_pem_file(&files.key).map_err(|error| unusable(&files.key)(&error))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_no_client_auth()
        .with_single_cert(certificates, key);
    let mut config = config.map_err(|error| of_certificate(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}
