//! The server as browsers of other hosts reach it: over TLS, or through a proxy.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

use super::*;
use crate::tls::{TlsFiles, TlsServer};
use crate::{AccountOptions, PageEncryption, PanelError, PanelOptions};

const LONG: Duration = Duration::from_secs(60);

/// A new certificate of `lab.example.org`.
fn certificate(files: &TlsFiles) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"])
        .args(["-days", "2", "-subj", "/CN=lab.example.org"])
        .args(["-addext", "subjectAltName=DNS:lab.example.org"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .arg("-keyout")
        .arg(&files.key)
        .arg("-out")
        .arg(&files.certificate)
        .output()
        .unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
}

fn files(directory: &TempDir) -> TlsFiles {
    let path = |name: &str| directory.path().join(name);
    TlsFiles { certificate: path("certificate.pem"), key: path("key.pem") }
}

fn options(
    directory: PathBuf,
    listen: &str,
    url: Option<&str>,
    encryption: PageEncryption,
) -> PanelOptions {
    let url = url.map(|url| url.parse().unwrap());
    let accounts = AccountOptions { url, encryption, limits: QuotaLimits::default() };
    let (listen, program) = (listen.parse().unwrap(), PathBuf::from("true"));
    let isolation = ScriptIsolation::Sandbox;
    PanelOptions { listen, directory, program, accounts: Some(accounts), isolation }
}

/// Starts a server. Returns its address, which another server's refusal says.
async fn start(options: PanelOptions) -> (SocketAddr, oneshot::Sender<()>) {
    let directory = options.directory.clone();
    let (end, ended) = oneshot::channel::<()>();
    let (opened, page) = oneshot::channel();
    tokio::spawn(async move {
        let ready = |page: &str| opened.send(page.to_owned()).unwrap();
        let end = async move { drop(ended.await) };
        crate::serve(options, ready, end).await.unwrap();
    });
    let page = timeout(LONG, page).await.unwrap().unwrap();
    assert_eq!(crate::page_of(&directory).unwrap(), Some(page));
    let address = fs::read_to_string(directory.join("address")).unwrap();
    (address.trim().parse().unwrap(), end)
}

/// The answer to a request for a path of `lab.example.org`.
async fn ask(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    let _ = timeout(LONG, stream.read_to_end(&mut answer)).await.unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

fn login(password: &str) -> String {
    let body = json!({ "name": "alice", "password": password }).to_string();
    format!(
        "POST /api/session HTTP/1.1\r\nhost: lab.example.org\r\nx-sunder: 1\r\n\
         origin: https://lab.example.org\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A connection by a browser that trusts this certificate only.
async fn connect(
    address: SocketAddr,
    trusted: &Path,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(trusted).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = ServerName::try_from("lab.example.org").unwrap();
    let stream = TcpStream::connect(address).await.unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await
}

fn join(directory: &Path) {
    let mut store = AccountStore::open(directory).unwrap();
    let now = ::accounts::now();
    let secret = store.invite(&named("alice"), now).unwrap();
    let hash = PasswordHasher::new(64, 1).hash(PASSWORD).unwrap();
    store.accept(secret.as_str(), &hash, now).unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_signs_in_over_tls() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&directory);
    certificate(&files);
    let lab = directory.path().join("lab");
    let url = Some("https://lab.example.org");
    let tls = PageEncryption::Tls(files.clone());
    let (address, _end) = start(options(lab.clone(), "127.0.0.1:0", url, tls)).await;
    join(&lab);
    let stream = connect(address, &files.certificate).await.unwrap();
    let answer = ask(stream, &login(PASSWORD)).await;
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(answer.contains("set-cookie: __Host-sunder="), "{answer}");
    assert!(
        answer.contains("; Path=/; HttpOnly; SameSite=Strict; Secure; Max-Age=604800"),
        "{answer}"
    );
    assert!(answer.contains("strict-transport-security: max-age=31536000"), "{answer}");
    // Another name leads nowhere, and nothing is answered in the clear.
    let stream = connect(address, &files.certificate).await.unwrap();
    let other = login(PASSWORD).replace("host: lab.example.org", "host: 127.0.0.1");
    assert!(ask(stream, &other).await.starts_with("HTTP/1.1 421"));
    let clear = ask(TcpStream::connect(address).await.unwrap(), &login(PASSWORD)).await;
    assert!(!clear.contains("HTTP/1.1"), "{clear}");
}

#[tokio::test]
async fn a_renewed_certificate_is_used_without_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let files = files(&directory);
    certificate(&files);
    let server = TlsServer::open(files.clone()).unwrap();
    let old = directory.path().join("old.pem");
    fs::copy(&files.certificate, &old).unwrap();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let is_trusted = async |certificate: &Path| {
        let accept = async { server.accept(listener.accept().await.unwrap().0).await };
        let (_, connected) = tokio::join!(accept, connect(address, certificate));
        connected.is_ok()
    };
    assert!(is_trusted(&old).await);
    certificate(&files);
    server.reload().unwrap();
    assert!(is_trusted(&files.certificate).await && !is_trusted(&old).await);
    // A wrong file changes nothing, and is named.
    fs::write(&files.key, "no key").unwrap();
    let error = server.reload().unwrap_err().to_string();
    assert!(error.contains("key.pem"), "{error}");
    assert!(is_trusted(&files.certificate).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_proxy_the_browsers_address_counts() {
    let directory = tempfile::tempdir().unwrap();
    let lab = directory.path().join("lab");
    let url = Some("https://lab.example.org");
    let options = options(lab.clone(), "127.0.0.1:0", url, PageEncryption::Proxy);
    let (address, _end) = start(options).await;
    join(&lab);
    let ask_from = async |source: &str, password: &str| {
        // What a browser has put there itself is before the proxy's own.
        let forwarded = format!("x-forwarded-for: 192.0.2.9, {source}\r\nconnection:");
        let request = login(password).replace("connection:", &forwarded);
        ask(TcpStream::connect(address).await.unwrap(), &request).await
    };
    while ask_from("192.0.2.1", "a wrong password").await.starts_with("HTTP/1.1 403") {}
    let answer = ask_from("192.0.2.1", PASSWORD).await;
    assert!(answer.starts_with("HTTP/1.1 429"), "{answer}");
    let answer = ask_from("192.0.2.2", PASSWORD).await;
    assert!(answer.starts_with("HTTP/1.1 204") && answer.contains("; Secure;"), "{answer}");
}

#[tokio::test]
async fn passwords_are_never_sent_in_the_clear_between_hosts() {
    let directory = tempfile::tempdir().unwrap();
    let refused = async |options: PanelOptions| {
        let served = crate::serve(options, |_| {}, std::future::pending());
        timeout(LONG, served).await.unwrap().unwrap_err()
    };
    let lab = directory.path().join("lab");
    let all = "0.0.0.0:0";
    let url = Some("https://lab.example.org");
    for url in [None, url] {
        let error = refused(options(lab.clone(), all, url, PageEncryption::None)).await;
        assert!(matches!(error, PanelError::NotEncrypted(_)), "{error}");
    }
    let error = refused(options(lab.clone(), "127.0.0.1:0", None, PageEncryption::Proxy)).await;
    assert!(matches!(error, PanelError::NoUrl), "{error}");
    let tls = PageEncryption::Tls(files(&directory));
    let error = refused(options(lab.clone(), all, None, tls.clone())).await;
    assert!(matches!(error, PanelError::NoUrl), "{error}");
    let error = refused(options(lab.clone(), all, url, tls)).await;
    assert!(error.to_string().contains("certificate.pem"), "{error}");
    // The directories of both kinds of server are not mixed.
    AccountStore::open(&lab).unwrap();
    let one_user =
        PanelOptions { accounts: None, ..options(lab, "127.0.0.1:0", None, PageEncryption::None) };
    let error = refused(one_user).await;
    assert!(matches!(error, PanelError::OtherKind(..)), "{error}");
}
