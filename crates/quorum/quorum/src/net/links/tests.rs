//! Links over real sockets on loopback.

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr};

use service::listening::listen;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::yield_now;

use super::*;
use crate::log::tests::secret;
use crate::protocol::link::handshake::HELLO_LEN;
use crate::protocol::link::lanes::MESSAGE_COST;

/// Not the address from which connections come: their ports are not in the way of a server that
/// starts again.
const LOOPBACK: (Ipv4Addr, u16) = (Ipv4Addr::new(127, 90, 0, 1), 0);

struct Server {
    address: SocketAddr,
    links: QuorumLinks,
    inboxes: [TopicInbox; 3],
    peer: QuorumPeer,
}

async fn server(number: u8) -> Server {
    server_at(number, LOOPBACK.into()).await
}

async fn server_at(number: u8, address: SocketAddr) -> Server {
    let listening = loop {
        match listen([address], &[]).await {
            Ok(listening) => break listening,
            // The task of the server before closes its listener soon.
            Err(error) if error.kind() == ErrorKind::AddrInUse => yield_now().await,
            Err(error) => panic!("{error}"),
        }
    };
    let address = listening[0].address().unwrap();
    let peer = QuorumPeer { key: secret(number).public(), address: address.into() };
    let (links, inboxes) = QuorumLinks::start(secret(number), listening);
    Server { address, links, inboxes, peer }
}

/// Servers with links between all of them; the one that dials most is the first.
async fn servers(numbers: impl IntoIterator<Item = u8>) -> Vec<Server> {
    let mut servers = Vec::new();
    for number in numbers {
        servers.push(server(number).await);
    }
    servers.sort_by_key(|server| server.peer.key.to_bytes());
    let peers: Vec<_> = servers.iter().map(|server| server.peer.clone()).collect();
    for server in &servers {
        server.links.set_peers(&peers);
    }
    for server in &mut servers {
        for _ in 1..peers.len() {
            up(server, LinkTopic::Log).await;
        }
    }
    servers
}

async fn next(server: &mut Server, topic: LinkTopic) -> LinkEvent {
    let next = server.inboxes[topic as usize - 1].next();
    timeout(Duration::from_secs(90), next).await.expect("in time").expect("links run")
}

async fn up(server: &mut Server, topic: LinkTopic) -> IdentityPublicKey {
    match next(server, topic).await {
        LinkEvent::Up(key) => key,
        other => panic!("{other:?}"),
    }
}

async fn message(server: &mut Server, topic: LinkTopic) -> LinkMessage {
    loop {
        if let LinkEvent::Message(message) = next(server, topic).await {
            return message;
        }
    }
}

#[tokio::test]
async fn every_server_reaches_every_other() {
    let mut servers = servers(0..4).await;
    let keys: Vec<_> = servers.iter().map(|server| server.peer.key).collect();
    for from in 0..4 {
        for to in (0..4).filter(|to| *to != from) {
            let bytes = Bytes::from(vec![7; 1000 * (from + 1)]);
            let links = &servers[from].links;
            links.send(&keys[to], LinkTopic::Signing, LinkLane::Urgent, bytes.clone()).unwrap();
            let got = message(&mut servers[to], LinkTopic::Signing).await;
            assert_eq!((*got.from(), &got.bytes), (keys[from], &bytes));
        }
        let status = servers[from].links.status();
        assert!(status.len() == 3 && status.iter().all(|link| link.up && link.why.is_none()));
    }
    let unknown = secret(9).public();
    let sent = servers[0].links.send(&unknown, LinkTopic::Log, LinkLane::Urgent, Bytes::new());
    assert_eq!(sent, Err(LinkSendError::Down));
}

/// A message waits in the queue of an inbox, then in a queue that may have grown to twice its
/// length while the old one still exists. Its bytes are on the heap, with their owner.
#[test]
fn memory_of_a_message_is_within_its_cost() {
    let queues = size_of::<LinkEvent>().max(3 * size_of::<(usize, LinkMessage)>());
    let heap = 96;
    assert!(queues + heap <= MESSAGE_COST, "{queues}");
}

/// An urgent message is sent while 200 MB are waiting or in transit, and no program takes them.
#[tokio::test(flavor = "multi_thread")]
async fn large_messages_do_not_delay_urgent_ones() {
    let mut servers = servers(0..2).await;
    let to = servers[1].peer.key;
    let large = Bytes::from(vec![1; MAX_MESSAGE_LEN]);
    for _ in 0..3 {
        servers[0].links.send(&to, LinkTopic::Refresh, LinkLane::Bulk, large.clone()).unwrap();
    }
    servers[0]
        .links
        .send(&to, LinkTopic::Log, LinkLane::Urgent, Bytes::from_static(b"vote"))
        .unwrap();
    assert_eq!(message(&mut servers[1], LinkTopic::Log).await.bytes, b"vote"[..]);
    assert!(servers[0].links.status()[0].queued_bytes > 2 * MAX_MESSAGE_LEN as u64);
    let sent = SentBytes { log: 4, signing: 0, refresh: 3 * MAX_MESSAGE_LEN as u64 };
    assert_eq!(servers[0].links.sent(), sent);
    for _ in 0..3 {
        assert_eq!(message(&mut servers[1], LinkTopic::Refresh).await.bytes, large);
    }
}

#[tokio::test]
async fn a_server_that_starts_again_is_reached_again() {
    let mut servers = servers(0..2).await;
    for restarted in [0, 1] {
        let other = 1 - restarted;
        let Server { links, inboxes, peer, address } = servers.remove(restarted);
        drop((links, inboxes));
        let down = next(&mut servers[0], LinkTopic::Log).await;
        assert!(matches!(down, LinkEvent::Down(key) if key == peer.key), "{down:?}");
        assert!(servers[0].links.status()[0].why.is_some());
        let number = (0..2).find(|it| secret(*it).public() == peer.key).unwrap();
        let again = server_at(number, address).await;
        again.links.set_peers(std::slice::from_ref(&servers[0].peer));
        assert_eq!(up(&mut servers[0], LinkTopic::Log).await, peer.key);
        servers.insert(restarted, again);
        assert_eq!(up(&mut servers[restarted], LinkTopic::Log).await, servers[other].peer.key);
    }
}

#[tokio::test]
async fn a_server_that_has_moved_is_found() {
    let (one, other) = (server(0).await, server(1).await);
    let (mut dialer, mut acceptor) =
        if dials(&one.peer.key, &other.peer.key) { (one, other) } else { (other, one) };
    acceptor.links.set_peers(std::slice::from_ref(&dialer.peer));
    // Nobody listens there any more.
    let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let before = QuorumPeer { key: acceptor.peer.key, address: address.into() };
    dialer.links.set_peers(std::slice::from_ref(&before));
    while dialer.links.status()[0].why.is_none() {
        yield_now().await;
    }
    // It is named with another address, after the one that does not answer.
    dialer.links.set_peers(&[before.clone(), acceptor.peer.clone()]);
    assert_eq!(up(&mut dialer, LinkTopic::Log).await, acceptor.peer.key);
    assert_eq!(up(&mut acceptor, LinkTopic::Log).await, dialer.peer.key);
    assert_eq!(dialer.links.status()[0].address, acceptor.address.to_string());
    // A link continues when another address is listed first.
    dialer.links.set_peers(&[before.clone(), acceptor.peer.clone()]);
    let status = dialer.links.status().remove(0);
    assert!(status.up && status.address == acceptor.address.to_string(), "{status:?}");
}

/// A server that has left a group reconnects at growing intervals, and is logged once. When the
/// group expects it again, it connects at once.
#[tokio::test]
async fn refused_server_connects_at_once_when_it_is_expected_again() {
    let mut late = Vec::new();
    // A busy machine may delay some, or let another attempt be refused.
    for _ in 0..3 {
        let (took, refused) = reconnect_when_expected_again().await;
        // What it was asked for is no fault.
        if took < Duration::from_secs(3) && refused == 8 {
            return;
        }
        late.push((took, refused));
    }
    panic!("three times late, or refused more than 8 times: {late:?}");
}

/// A server is refused 8 times, and then expected again. Returns how long it takes until it has a
/// link, and how often it was refused.
async fn reconnect_when_expected_again() -> (Duration, u64) {
    let (one, other) = (server(0).await, server(1).await);
    let (mut dialer, mut acceptor) =
        if dials(&one.peer.key, &other.peer.key) { (one, other) } else { (other, one) };
    acceptor.links.set_peers(&[]);
    dialer.links.set_peers(std::slice::from_ref(&acceptor.peer));
    // The pauses are 0.05 s, and twice as long each time: the next one is longer than 3 s.
    while acceptor.links.refused_connections() < 8 {
        sleep(Duration::from_millis(20)).await;
    }
    let before = Instant::now();
    acceptor.links.set_peers(std::slice::from_ref(&dialer.peer));
    assert_eq!(up(&mut dialer, LinkTopic::Log).await, acceptor.peer.key);
    assert_eq!(up(&mut acceptor, LinkTopic::Log).await, dialer.peer.key);
    (before.elapsed(), acceptor.links.refused_connections())
}

#[tokio::test]
async fn a_server_with_another_key_is_named_and_gets_no_link() {
    let (one, other) = (server(0).await, server(1).await);
    let (one, other) =
        if dials(&one.peer.key, &other.peer.key) { (one, other) } else { (other, one) };
    let stranger = (2..200).map(|it| secret(it).public());
    let expected = stranger.into_iter().find(|key| dials(&one.peer.key, key)).unwrap();
    one.links.set_peers(&[QuorumPeer { key: expected, address: other.address.into() }]);
    other.links.set_peers(std::slice::from_ref(&one.peer));
    let why = loop {
        if let Some(why) = one.links.status()[0].why.clone() {
            break why;
        }
        yield_now().await;
    };
    assert_eq!(why, format!("the server there says that its key is {}", other.peer.key));
    assert!(!one.links.status()[0].up && !other.links.status()[0].up);
}

/// Attackers without a key connect, are silent, send too little, send garbage, and replay a hello,
/// a hundred times each. None of it opens a link, and the expected server can still connect.
#[tokio::test]
async fn unauthenticated_connections_do_not_block_links() {
    let (one, other) = (server(0).await, server(1).await);
    let (mut dialer, acceptor) =
        if dials(&one.peer.key, &other.peer.key) { (one, other) } else { (other, one) };
    acceptor.links.set_peers(std::slice::from_ref(&dialer.peer));
    let number = (0..2).find(|it| secret(*it).public() == dialer.peer.key).unwrap();
    let ephemeral = keys::noise::EphemeralKey(zeroize::Zeroizing::new([5; 32]));
    let (_, replayed) = crate::protocol::link::handshake::LinkDialer::new(
        &secret(number),
        &acceptor.peer.key,
        ephemeral,
    );
    let mut held = Vec::new();
    for _ in 0..100 {
        for says in [&[][..], &replayed[..50], &[b'x'; HELLO_LEN], &replayed] {
            let mut stream = TcpStream::connect(acceptor.address).await.unwrap();
            stream.write_all(says).await.unwrap();
            held.push(stream);
        }
    }
    // The last one has got an answer, and goes on with what it cannot encrypt.
    let mut last = held.pop().unwrap();
    last.read_exact(&mut [0; 49]).await.unwrap();
    last.write_all(&[0; 27]).await.unwrap();
    assert!(!matches!(last.read(&mut [0; 1]).await, Ok(1..)));
    assert!(!acceptor.links.status()[0].up);
    dialer.links.set_peers(std::slice::from_ref(&acceptor.peer));
    assert_eq!(up(&mut dialer, LinkTopic::Log).await, acceptor.peer.key);
    drop(held);
}

/// Counts the lines that are logged.
struct Lines(Arc<std::sync::atomic::AtomicUsize>);

impl tracing::Subscriber for Lines {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, _: &tracing::Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test]
async fn reconnecting_server_does_not_fill_the_log() {
    let count = Arc::default();
    let _guard = tracing::subscriber::set_default(Lines(Arc::clone(&count)));
    let (one, other) = (server(0).await, server(1).await);
    let is_first = dials(&one.peer.key, &other.peer.key);
    let (dialer, mut acceptor) = if is_first { (one, other) } else { (other, one) };
    acceptor.links.set_peers(std::slice::from_ref(&dialer.peer));
    let key = secret(u8::from(!is_first));
    let (start, mut generator) = (Instant::now(), RandomGenerator::system());
    for _ in 0..50 {
        let link = connection::dial(&key, &acceptor.peer, &mut generator).await.unwrap();
        up(&mut acceptor, LinkTopic::Log).await;
        drop(link);
        let down = next(&mut acceptor, LinkTopic::Log).await;
        assert!(matches!(down, LinkEvent::Down(_)), "{down:?}");
    }
    let periods = usize::try_from(start.elapsed().as_secs() / 10 + 1).unwrap();
    let logged = count.load(Ordering::Relaxed);
    assert!((2..=periods * MAX_LINES as usize).contains(&logged), "{logged} lines of 100");
}

#[tokio::test]
async fn removed_servers_lose_their_links() {
    let mut servers = servers(0..2).await;
    servers[0].links.set_peers(&[]);
    assert!(matches!(next(&mut servers[0], LinkTopic::Log).await, LinkEvent::Down(_)));
    assert!(matches!(next(&mut servers[1], LinkTopic::Log).await, LinkEvent::Down(_)));
    assert!(servers[0].links.status().is_empty());
}
