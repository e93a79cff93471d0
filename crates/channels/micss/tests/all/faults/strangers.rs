//! Peers that violate the handshake lose their own connections, and affect no others.

use std::net::SocketAddr;
use std::time::Duration;

use association::{
    AssociationMessage, AssociationProtocol, AssociationTerms, ConnectionCookie, CookieList,
    SharingScheme,
};
use random::RandomGenerator;
use sharing::SharingParameters;
use socket2::SockRef;
use sunder_micss::outgoing::OutgoingRecords;
use sunder_micss::record::MicssRecordKind;
use sunder_micss::target::ServiceTarget;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::common::{
    Running, ask, client_toml, drain_sink, server_toml, start_client, start_server, start_service,
};

/// The length of a cookie message, and the position of the cookie.
const COOKIE: usize = 24;
const HEADER: usize = 8;

/// A server with a service that ends every connection at once.
async fn server(n: usize) -> (Running, SocketAddr) {
    let service = start_service(|_| async {}).await;
    (start_server(&server_toml(n, service, "tamper-code")).await, service)
}

/// Connects, and receives the cookie.
async fn connect(address: SocketAddr) -> (TcpStream, [u8; COOKIE - HEADER]) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let mut message = [0; COOKIE];
    stream.read_exact(&mut message).await.unwrap();
    assert_eq!(message[..HEADER], *b"SNDR\x01\x01\x00\x10");
    (stream, message[HEADER..].try_into().unwrap())
}

/// A list with MICSS's terms.
pub(crate) fn list(cookies: &[[u8; COOKIE - HEADER]]) -> Vec<u8> {
    let n = u8::try_from(cookies.len()).unwrap();
    let [high, low] = (8 + 16 * u16::from(n)).to_be_bytes();
    let head = [b'S', b'N', b'D', b'R', 1, 2, high, low, 1, 1, n, n, 0, 0, 0, 0];
    [&head[..], cookies.as_flattened()].concat()
}

/// Checks that a connection is closed without an answer.
async fn assert_closed(mut stream: TcpStream, what: &str) {
    // With bytes that the server did not read, the end is a reset.
    assert_eq!(drain_sink(&mut stream).await.unwrap_or(0), 0, "{what}");
}

/// Checks that others are still served.
async fn assert_serves(server: &Running, service: SocketAddr) {
    let client = start_client(&client_toml(&server.addresses, "tamper-code")).await;
    assert_eq!(ask(client.addresses[0], service).await.1, 0);
    client.stop().await;
}

#[tokio::test]
async fn other_protocols() {
    let (server, service) = server(2).await;
    let whole = list(&[[1; 16], [2; 16]]);
    let cases: [(&str, &[u8]); 5] = [
        ("garbage", &[0xA5; 1000]),
        ("a list of others' cookies", &whole),
        ("a cookie", b"SNDR\x01\x01\x00\x10"),
        ("a list that is too long", b"SNDR\x01\x02\xff\xe8"),
        ("another version", b"SNDR\x02\x02\x00\x28"),
    ];
    for (what, bytes) in cases {
        let (mut stream, cookie) = connect(server.addresses[0]).await;
        if what == "a cookie" {
            stream.write_all(&[bytes, &cookie].concat()).await.unwrap();
        } else {
            stream.write_all(bytes).await.unwrap();
        }
        assert_closed(stream, what).await;
    }
    assert_serves(&server, service).await;
    server.stop().await;
}

#[tokio::test]
async fn half_a_list_and_an_end() {
    let (server, service) = server(2).await;
    let (mut stream, cookie) = connect(server.addresses[0]).await;
    stream.write_all(&list(&[cookie, [2; 16]])[..34]).await.unwrap();
    stream.shutdown().await.unwrap();
    assert_closed(stream, "half a list").await;
    assert_serves(&server, service).await;
    server.stop().await;
}

/// The bytes after a list belong to the stream and are not a request.
#[tokio::test]
async fn noise_after_the_lists() {
    let (server, service) = server(2).await;
    let ((mut first, a), (mut second, b)) =
        (connect(server.addresses[0]).await, connect(server.addresses[1]).await);
    let sent = [list(&[a, b]), vec![0; 36]].concat();
    first.write_all(&sent).await.unwrap();
    second.write_all(&sent).await.unwrap();
    assert_closed(first, "noise").await;
    assert_closed(second, "noise").await;
    assert_serves(&server, service).await;
    server.stop().await;
}

#[tokio::test]
async fn noise_after_an_expired_list() {
    let (server, service) = server(2).await;
    let ((mut first, a), (mut second, b)) =
        (connect(server.addresses[0]).await, connect(server.addresses[1]).await);
    first.write_all(&[list(&[a, b]), vec![0; 36]].concat()).await.unwrap();
    second.write_all(&list(&[b, a])).await.unwrap();
    assert_closed(first, "a list that another does not confirm").await;
    assert_closed(second, "the same").await;
    assert_serves(&server, service).await;
    server.stop().await;
}

/// The attacker knows a victim's cookies and lists them. The victim still gets its stream, and the
/// attacker no part of it.
#[tokio::test]
async fn a_list_that_names_a_victims_cookies() {
    let (server, service) = server(2).await;
    let victim = [connect(server.addresses[0]).await, connect(server.addresses[1]).await];
    let theirs = [victim[0].1, victim[1].1];
    let (mut thief, own) = connect(server.addresses[0]).await;
    thief.write_all(&list(&[own, theirs[1]])).await.unwrap();
    let [(mut first, _), (mut second, _)] = victim;
    let nowhere = ServiceTarget::address(([127, 0, 0, 1], 9).into());
    let mut request =
        OutgoingRecords::new(SharingParameters::xor(2).unwrap(), RandomGenerator::system());
    request.precede(list(&theirs));
    request.seal_payload(MicssRecordKind::Open, &nowhere.encode()).unwrap();
    for (channel, stream) in [&mut first, &mut second].into_iter().enumerate() {
        stream.write_all(request.unsent(channel)).await.unwrap();
    }
    for stream in [&mut first, &mut second] {
        let mut confirm = [0; HEADER + 8 + 2 * 16];
        stream.read_exact(&mut confirm).await.unwrap();
        assert_eq!(confirm[5], 3, "a confirm");
        assert_eq!(confirm[16..], *theirs.as_flattened());
    }
    drop((first, second));
    assert_closed(thief, "a thief").await;
    assert_serves(&server, service).await;
    server.stop().await;
}

/// Streams without the tamper code and with spare channels: changed channels could not be
/// identified.
#[tokio::test]
async fn a_threshold_without_the_code() {
    let service = start_service(async |_| ()).await;
    let server = start_server(&server_toml(3, service, "none")).await;
    for (k, is_served) in [(2, false), (3, true)] {
        let (mut streams, mut cookies) = (Vec::new(), Vec::new());
        for &address in &server.addresses {
            let (stream, cookie) = connect(address).await;
            streams.push(stream);
            cookies.push(ConnectionCookie::new(cookie));
        }
        let sharing = SharingParameters::shamir(k, 3).unwrap();
        let terms =
            AssociationTerms::new(AssociationProtocol::MicssStream, SharingScheme::Shamir, k, 3, 1)
                .unwrap();
        let mut request = OutgoingRecords::new(sharing, RandomGenerator::system());
        request
            .precede(AssociationMessage::List(CookieList::new(terms, cookies).unwrap()).encode());
        request
            .seal_payload(MicssRecordKind::Open, &ServiceTarget::address(service).encode())
            .unwrap();
        for (channel, stream) in streams.iter_mut().enumerate() {
            stream.write_all(request.unsent(channel)).await.unwrap();
        }
        for mut stream in streams {
            assert_eq!(stream.read_exact(&mut [0; 8]).await.is_ok(), is_served, "{k} of 3");
        }
    }
    server.stop().await;
}

/// More connections than may ever wait come and go. If any remained, the last would be refused.
#[tokio::test]
async fn closed_connections_leave_nothing() {
    let (server, service) = server(2).await;
    for _ in 0..9000 {
        let (stream, _) = connect(server.addresses[0]).await;
        SockRef::from(&stream).set_linger(Some(Duration::ZERO)).unwrap();
    }
    assert_serves(&server, service).await;
    server.stop().await;
}
