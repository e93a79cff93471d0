//! Streams that cannot be opened, and the reply to the application.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use crate::common::{ask, client_toml, server_toml, start_client, start_server, start_service};

/// SOCKS5 reply codes, from RFC 1928, section 6.
const NOT_ALLOWED: u8 = 2;
const UNREACHABLE: u8 = 3;
const REFUSED: u8 = 5;

/// An address without a listener. Its port stays taken: another test would listen there.
fn nobody() -> SocketAddr {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let address = socket.local_addr().unwrap();
    std::mem::forget(socket);
    address
}

/// The reply to a request for `target`.
async fn reply(server: &str, channels: usize, integrity: &str, target: SocketAddr) -> u8 {
    let server = start_server(server).await;
    let client = start_client(&client_toml(&server.addresses[..channels], integrity)).await;
    let (_, code) = ask(client.addresses[0], target).await;
    tokio::join!(client.stop(), server.stop());
    code
}

#[tokio::test]
async fn a_service_that_is_not_allowed_or_not_running() {
    let service = start_service(|_| async {}).await;
    let allows_service = server_toml(2, service, "tamper-code");
    let elsewhere = nobody();
    assert_eq!(reply(&allows_service, 2, "tamper-code", elsewhere).await, NOT_ALLOWED);
    let allows_nobody = server_toml(2, elsewhere, "tamper-code");
    assert_eq!(reply(&allows_nobody, 2, "tamper-code", elsewhere).await, REFUSED);
}

#[tokio::test]
async fn rejected_terms() {
    let service = start_service(|_| async {}).await;
    let strict = server_toml(2, service, "tamper-code");
    assert_eq!(reply(&strict, 2, "none", service).await, UNREACHABLE);
    let two_or_more = strict.replace("min_channels = 1", "min_channels = 2");
    assert_eq!(reply(&two_or_more, 1, "tamper-code", service).await, UNREACHABLE);
    assert_eq!(reply(&two_or_more, 2, "tamper-code", service).await, 0);
    // A server that accepts streams without the code does not force its clients to.
    let lenient = server_toml(2, service, "none");
    assert_eq!(reply(&lenient, 2, "tamper-code", service).await, 0);
}

#[tokio::test]
async fn a_channel_that_cannot_be_connected() {
    let service = start_service(|_| async {}).await;
    let server = start_server(&server_toml(2, service, "tamper-code")).await;
    let channels = [server.addresses[0], nobody()];
    let client = start_client(&client_toml(&channels, "tamper-code")).await;
    assert_eq!(ask(client.addresses[0], service).await.1, UNREACHABLE);
    tokio::join!(client.stop(), server.stop());
}

#[tokio::test]
async fn a_forward_that_fails_is_a_reset() {
    let service = nobody();
    let server = start_server(&server_toml(2, service, "tamper-code")).await;
    let forward = format!("[[forward]]\nlisten = \"127.0.0.1:0\"\ntarget = \"{service}\"\n");
    let client = start_client(&(client_toml(&server.addresses, "tamper-code") + &forward)).await;
    let mut application = TcpStream::connect(client.addresses[1]).await.unwrap();
    let error = application.read(&mut [0]).await.expect_err("a reset, not an end");
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    tokio::join!(client.stop(), server.stop());
}

#[tokio::test]
async fn other_protocols_instead_of_socks() {
    // No stream is opened, so no server is needed.
    let client = start_client(&client_toml(&[nobody()], "tamper-code")).await;
    let cases: [(&[u8], &[u8]); 6] = [
        (b"GET / HTTP/1.1\r\n\r\n", b""),
        (b"\x04\x01\x00\x50\x7f\x00\x00\x01\x00", b""),
        (b"\x05\x01\x02", b"\x05\xff"),
        (b"\x05\x01\x00\x05\x02\x00\x01", b"\x05\x00\x05\x07\x00\x01\0\0\0\0\0\0"),
        (b"\x05\x01\x00\x05\x01\x00\x09", b"\x05\x00\x05\x08\x00\x01\0\0\0\0\0\0"),
        (b"\x05\x01\x00\x05\x01\x00\x03\x01!\x00\x50", b"\x05\x00\x05\x01\x00\x01\0\0\0\0\0\0"),
    ];
    for (request, expected) in cases {
        let mut application = TcpStream::connect(client.addresses[0]).await.unwrap();
        application.write_all(request).await.unwrap();
        let mut heard = Vec::new();
        // With unread bytes, the end is a reset.
        let _ = application.read_to_end(&mut heard).await;
        assert_eq!(heard, expected, "{request:?}");
    }
    client.stop().await;
}
