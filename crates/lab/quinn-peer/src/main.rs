//! One stream over quinn, to compare with. The receiver writes its certificate for the sender.
//!
//!     quinn-peer receive PORT CERTIFICATE; quinn-peer send HOST PORT CERTIFICATE BYTES
//!
//! As in quinn's own bench: one connection, one stream of chunks of 1 MiB, default settings.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use quinn::{ClientConfig, Endpoint, ServerConfig};
use rustls::RootCertStore;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

const CHUNK_LEN: usize = 1 << 20;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["receive", port, certificate] => receive(port.parse()?, certificate).await,
        ["send", host, port, certificate, bytes] => {
            send(format!("{host}:{port}").parse()?, certificate, bytes.parse()?).await
        }
        _ => Err("quinn-peer receive PORT CERTIFICATE, or send HOST PORT CERTIFICATE BYTES".into()),
    }
}

async fn receive(port: u16, certificate: &str) -> Result<()> {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()])?;
    std::fs::write(certificate, made.cert.der())?;
    let key = PrivatePkcs8KeyDer::from(made.key_pair.serialize_der());
    let config = ServerConfig::with_single_cert(vec![made.cert.der().clone()], key.into())?;
    let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, port).into())?;
    println!("listening");
    while let Some(incoming) = endpoint.accept().await {
        let connection = incoming.await?;
        let (mut answer, mut stream) = connection.accept_bi().await?;
        while stream.read_chunk(usize::MAX, false).await?.is_some() {}
        answer.write_all(&[1]).await?;
        answer.finish()?;
        connection.closed().await;
    }
    Ok(())
}

async fn send(to: SocketAddr, certificate: &str, bytes: usize) -> Result<()> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from(std::fs::read(certificate)?))?;
    let mut endpoint = Endpoint::client((Ipv4Addr::UNSPECIFIED, 0).into())?;
    endpoint.set_default_client_config(ClientConfig::with_root_certificates(Arc::new(roots))?);
    let began = Instant::now();
    let connection = endpoint.connect(to, "localhost")?.await?;
    let (mut stream, mut answer) = connection.open_bi().await?;
    let chunk = vec![0x5a; CHUNK_LEN];
    let mut left = bytes;
    while left > 0 {
        let count = left.min(chunk.len());
        stream.write_all(&chunk[..count]).await?;
        left -= count;
    }
    stream.finish()?;
    answer.read_to_end(1).await?;
    println!("{{\"complete_s\": {}}}", began.elapsed().as_secs_f64());
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}
