//! Servers with real links on loopback, stores in files, local users at their sockets, and the
//! in-memory log.

mod review;

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command as Process;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use keys::{IdentityPublicKey, IdentitySecretKey, RsaPublicKey};
use random::RandomGenerator;
use rsa_arithmetic::fixture::{large_key, small_key};
use service::listening::listen;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::*;
use crate::log::memory::MemoryLog;
use crate::net::api::{
    ApiEncoding, ApiSocket, QuorumApiClient, QuorumApiError, RefreshStatus, RefreshStep,
};
use crate::net::ceremony_files;
use crate::net::consensus::{self, ConsensusLog, ConsensusMonitor};
use crate::net::nodes::parse_nodes;
use crate::protocol::ceremony::bundle::QuorumBundle;
use crate::protocol::ceremony::share_file::QuorumShareFile;
use crate::protocol::group::verify_chain;
use crate::protocol::server::GroupStart;
use crate::protocol::unix_seconds::UnixSeconds;
use crate::protocol::wire::Sha256Digest;

const MESSAGE: &[u8] = b"addresses: 192.0.2.1\n";

/// The time limit for what takes less than a second on an idle host.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);

/// A place for all servers, with a key and the shares of the first four.
struct World {
    place: TempDir,
    addresses: Vec<SocketAddr>,
    log: MemoryLog,
}

struct Running {
    node: QuorumNode,
    socket: ApiSocket,
    client: QuorumApiClient,
}

fn identity(number: usize) -> IdentitySecretKey {
    IdentitySecretKey::new(&[u8::try_from(number).unwrap(); 32])
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

impl World {
    /// Places for this many servers, numbered from 1.
    fn new(count: usize) -> Self {
        let place = TempDir::new().unwrap();
        // Free ports: all at once, so that they differ; not at the address from which connections
        // come, which would take them.
        let listeners: Vec<_> =
            (0..count).map(|_| TcpListener::bind("127.91.0.1:0").unwrap()).collect();
        let addresses = listeners.iter().map(|it| it.local_addr().unwrap()).collect();
        let mut world =
            Self { place, addresses, log: MemoryLog::immediate(&crate::log::tests::set(1..=4)) };
        let group = parse_nodes(&world.nodes(1..=4)).unwrap();
        let files = QuorumShareFile::deal(
            &small_key(),
            &group,
            UnixSeconds(0),
            &mut RandomGenerator::seeded().unwrap(),
        );
        let files = files.unwrap();
        world.log = MemoryLog::immediate(&group.voters(&files[0].header.voting));
        ceremony_files::write(world.place.path(), &files).unwrap();
        write_secret(&world.place.path().join("master.key"), &"0f".repeat(32));
        world
    }

    /// The list of servers with these numbers.
    fn nodes(&self, numbers: impl IntoIterator<Item = usize>) -> String {
        let server = |number: usize| {
            let (identity, address) = (identity(number).public(), self.addresses[number - 1]);
            format!("[[server]]\nidentity = \"{identity}\"\naddress = \"{address}\"\n")
        };
        numbers.into_iter().map(server).collect::<Vec<_>>().concat()
    }

    /// The configuration of a server, which names those of the first group.
    fn config(&self, number: usize) -> QuorumNodeConfig {
        let path = |name: &str| self.place.path().join(name).display().to_string();
        write_secret(&self.place.path().join(format!("{number}.key")), &{
            format!("{number:02x}").repeat(32)
        });
        let share = if number <= 4 {
            format!("share = \"{}\"\n", path(&format!("server-{number}.share")))
        } else {
            String::new()
        };
        let text = format!(
            "identity = \"{}\"\npublic_key = \"{}\"\nmaster_key = \"{}\"\nstore = \"{}\"\n\
             {share}listen = [\"{}\"]\nsocket = \"{}\"\n{}",
            path(&format!("{number}.key")),
            path("public.pem"),
            path("master.key"),
            path(&format!("store-{number}")),
            self.addresses[number - 1],
            path(&format!("{number}.sock")),
            self.nodes(1..=4).replace("[[server]]", "[[peer]]"),
        );
        QuorumNodeConfig::from_toml(&text).unwrap()
    }

    async fn start(&self, number: usize) -> Running {
        let config = self.config(number);
        let (log, key): (_, IdentityPublicKey) = (self.log.clone(), identity(number).public());
        let start_log = move |start: LogStart<_>| Ok(log.open(key, start.applied));
        run(&config, self.open(&config).await, start_log)
    }

    async fn open(&self, config: &QuorumNodeConfig) -> OpenedNode {
        loop {
            match open(config).await {
                Ok(opened) => break opened,
                // The task of the server before closes its listener soon.
                Err(error) if error.to_string().contains("Address already in use") => {
                    sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Starts a server with the agreement log of real servers.
    async fn start_in_agreement(
        &self,
        number: usize,
    ) -> (Running, Arc<Mutex<Option<ConsensusMonitor>>>) {
        let mut config = self.config(number);
        config.delays.need = Duration::from_secs(1);
        let opened = self.open(&config).await;
        let (identity, links) = (identity(number).public(), Arc::clone(&opened.network.links));
        let log = Sha256Digest(opened.settings.public.digest());
        let store = config.config_dir.join(&config.store).join("log.sqlite");
        let monitor = Arc::new(Mutex::new(None));
        let shown = Arc::clone(&monitor);
        let start_log = move |start: LogStart<ConsensusLog>| {
            let LogStart { applied, inbox_source: before, .. } = start;
            let inbox = match before {
                LogInboxSource::Inbox(inbox) => inbox,
                LogInboxSource::Log(log) => log.stop().unwrap(),
            };
            let (links, store) = (Arc::clone(&links), store.clone());
            let settings =
                consensus::ConsensusSettings { identity, log, links, inbox, store, applied };
            let log = ConsensusLog::start(settings).unwrap();
            *shown.lock().unwrap() = Some(log.monitor());
            Ok(log)
        };
        (run(&config, opened, start_log), monitor)
    }

    async fn start_all(&self, numbers: impl IntoIterator<Item = usize>) -> Vec<Running> {
        let mut running = Vec::new();
        for number in numbers {
            running.push(self.start(number).await);
        }
        running
    }

    /// Whether openssl accepts the signature of [`MESSAGE`].
    fn openssl_accepts(&self, signature: &[u8]) -> bool {
        let place = self.place.path();
        fs::write(place.join("message.sig"), signature).unwrap();
        let mut openssl = Process::new("openssl")
            .args(["dgst", "-sha256", "-verify", "public.pem", "-signature", "message.sig"])
            .current_dir(place)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        openssl.stdin.take().unwrap().write_all(MESSAGE).unwrap();
        openssl.wait_with_output().unwrap().stdout == b"Verified OK\n"
    }
}

fn run<L: AgreementLog + Send + 'static>(
    config: &QuorumNodeConfig,
    opened: OpenedNode,
    start_log: impl FnMut(LogStart<L>) -> Result<L, LogFailed> + Send + 'static,
) -> Running {
    let OpenedNode { settings, store, network } = opened;
    let node = QuorumNode::start(settings, store, network, start_log).unwrap();
    let handle = Arc::new(node.handle());
    let [ConfiguredSocket { path, access, allowed, .. }] = config.sockets()[..] else {
        panic!("one socket")
    };
    let socket = ApiSocket::open(path, access, allowed, 64, handle).unwrap();
    Running { node, socket, client: QuorumApiClient::new(path) }
}

/// Waits until something holds.
async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let waiting = async {
        while !holds().await {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(WAIT_TIMEOUT, waiting).await.unwrap_or_else(|_| panic!("{what}"));
}

async fn until_healthy(servers: &[Running]) {
    for server in servers {
        until("it is healthy", async || server.client.health().await.is_ok_and(|it| it.ok)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn four_servers_sign_and_move_the_key_to_four_others() {
    let world = World::new(8);
    let old = world.start_all(1..=4).await;
    until_healthy(&old).await;
    assert!(!world.place.path().join("server-1.share").exists(), "the file was destroyed");
    let message = Bytes::from_static(MESSAGE);
    let refused = old[0].client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap_err();
    assert!(refused.is_forbidden(), "{refused}");
    for server in &old[..2] {
        assert!(server.client.register(message.clone()).await.unwrap().new);
    }
    let signature = old[0].client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap();
    assert!(world.openssl_accepts(&signature));
    let pss = old[1].client.sign(message.clone(), ApiEncoding::Pss).await.unwrap();
    assert!(small_key().group().public().verify(MESSAGE, &pss));

    let new = world.start_all(5..=8).await;
    let nodes = world.nodes(5..=8);
    for server in &old[..2] {
        let refresh = server.client.start_refresh(nodes.clone()).await.unwrap();
        assert_eq!(refresh.epoch, 2);
    }
    until_healthy(&new).await;
    for server in &new {
        let health = server.client.health().await.unwrap();
        assert_eq!(health.epoch, Some(2));
    }
    for server in &old {
        until("it has left", async || {
            server.client.health().await.unwrap().epoch.is_none()
                && server.client.refresh().await.unwrap().step == RefreshStep::Done
        })
        .await;
        let refused = server.client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap_err();
        let is_expected = matches!(refused, QuorumApiError::Refused { status: 403 | 503, .. });
        assert!(is_expected, "{refused}");
    }
    for server in &new[2..] {
        server.client.register(message.clone()).await.unwrap();
    }
    let again = new[3].client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap();
    assert_eq!(again, signature, "the same key makes the same signature");

    until("the chain has both epochs", async || {
        let headers = new[0].client.headers().await.unwrap();
        GroupStart::parse_chain(&headers).unwrap().len() == 2
    })
    .await;
    let chain = GroupStart::parse_chain(&new[0].client.headers().await.unwrap()).unwrap();
    let bytes: Vec<_> = chain.iter().map(|it| it.header.to_bytes()).collect();
    let pairs = bytes.iter().zip(&chain).map(|(bytes, it)| (&bytes[..], &it.signature[..]));
    let public = small_key().group().public().clone();
    let last = verify_chain(pairs, |message, signature| public.verify(message, signature));
    assert_eq!(last.unwrap().group, parse_nodes(&nodes).unwrap());
}

/// Two operators approve different lists, see why there is no progress, and cancel. Then they
/// approve one list, whose servers do nothing, and cancel that as well.
#[tokio::test(flavor = "multi_thread")]
async fn refresh_names_awaited_servers_and_is_cancelled() {
    let world = World::new(8);
    let servers = world.start_all(1..=4).await;
    until_healthy(&servers).await;
    let clients: Vec<&QuorumApiClient> = servers.iter().map(|server| &server.client).collect();
    let none = clients[0].cancel_refresh().await.unwrap_err().to_string();
    assert_eq!(none, "no refresh is open");
    let numbers = |refresh: &RefreshStatus| -> Vec<u64> {
        refresh.waiting_for.iter().map(|awaited| awaited.server).collect()
    };

    let missing = clients[0].start_refresh(world.nodes(5..=8)).await.unwrap_err().to_string();
    assert!(missing.starts_with("new servers do not answer: "), "{missing}");
    assert_eq!(missing.matches(": nobody listens there").count(), 4, "{missing}");
    // They answer, and know no other server.
    let mut idle = Vec::new();
    for number in 5..=8 {
        let listening = listen([world.addresses[number - 1]], &[]).await.unwrap();
        let (links, _) = QuorumLinks::start(identity(number), listening);
        links.set_peers(&[]);
        idle.push(links);
    }
    clients[0].start_refresh(world.nodes(5..=8)).await.unwrap();
    for client in &clients {
        until("the approval is counted, and all are connected", async || {
            client.refresh().await.is_ok_and(|it| {
                it.done == 1 && it.waiting_for.iter().all(|awaited| awaited.connected)
            })
        })
        .await;
        let state = client.refresh().await.unwrap();
        assert_eq!((state.step, state.of, state.epoch), (RefreshStep::Approving, 2, 2));
        assert_eq!((numbers(&state), &state.problem[..]), (vec![2, 3, 4], ""));
    }
    let other = clients[0].start_refresh(world.nodes([5, 6, 7, 4])).await.unwrap_err().to_string();
    assert!(other.contains("cancel it at f+1 servers first"), "{other}");
    clients[1].start_refresh(world.nodes([5, 6, 7, 4])).await.unwrap();
    until("the lists differ", async || {
        let state = clients[3].refresh().await.unwrap();
        state.problem.starts_with("different lists of servers are approved (by 1; by 2)")
    })
    .await;
    clients[2].cancel_refresh().await.unwrap();
    until("one has given it up", async || clients[3].refresh().await.unwrap().cancelled == 1).await;
    clients[0].cancel_refresh().await.unwrap();
    for client in &clients {
        until("it is given up", async || {
            client.refresh().await.unwrap().step == RefreshStep::Cancelled
        })
        .await;
    }

    for client in &clients[..2] {
        client.start_refresh(world.nodes(5..=8)).await.unwrap();
    }
    until("session keys are missing", async || {
        let state = clients[3].refresh().await.unwrap();
        state.step == RefreshStep::SessionKeys
            && (state.done, state.of) == (0, 3)
            && numbers(&state) == [1, 2, 3, 4]
            && state.waiting_for.iter().all(|awaited| !awaited.connected)
    })
    .await;
    for client in &clients[1..3] {
        client.cancel_refresh().await.unwrap();
    }
    until("it is given up, too", async || {
        clients[3].refresh().await.unwrap().step == RefreshStep::Cancelled
    })
    .await;
    let log = fs::read_to_string(world.place.path().join("store-2/audit.log")).unwrap();
    assert!(log.contains("{\"number\":") && log.contains("refresh-cancelled"), "{log}");
    assert!(clients[3].health().await.unwrap().ok);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_is_replaced_and_signs_again_after_a_restart() {
    let world = World::new(4);
    let mut servers = world.start_all(1..=4).await;
    until_healthy(&servers).await;
    let message = Bytes::from_static(MESSAGE);
    for server in &servers {
        server.client.register(message.clone()).await.unwrap();
    }
    let Running { node, socket, .. } = servers.remove(1);
    drop(socket);
    node.stop().await.unwrap();
    for server in &servers {
        let signature = server.client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap();
        assert!(world.openssl_accepts(&signature));
    }
    let again = world.start(2).await;
    until_healthy(std::slice::from_ref(&again)).await;
    // It has kept that the message is registered.
    let signature = again.client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap();
    assert!(world.openssl_accepts(&signature));
    let status = again.node.handle().status("a".into());
    assert_eq!((status.servers, status.index, status.signed), (4, Some(2), 1));
    assert!(status.has_shares && status.links.len() == 3);
    let mut numbers: Vec<_> = status.links.iter().map(|link| link.index).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [Some(1), Some(3), Some(4)], "the links' servers have their numbers");

    // Added peers may connect at once, and removed ones no longer.
    let mut config = world.config(2);
    let address = "127.91.0.1:9".parse().unwrap();
    config.peers.push(QuorumPeer { key: identity(9).public(), address });
    again.node.handle().reload(config.clone()).await.unwrap();
    let links = again.node.handle().status("a".into()).links;
    assert_eq!(links.len(), 4);
    assert_eq!(links.iter().filter(|link| link.index.is_none()).count(), 1, "it is no member");
    config.peers.clear();
    again.node.handle().reload(config).await.unwrap();
    let links = again.node.handle().status("a".into()).links;
    assert!(links.len() == 3 && links.iter().all(|link| link.up), "{links:?}");
}

#[tokio::test]
async fn a_share_file_of_another_server_is_refused() {
    let world = World::new(4);
    let mut config = world.config(1);
    config.share = world.config(2).share;
    let error = open(&config).await.err().unwrap();
    assert!(error.to_string().contains("it is for another `identity`"), "{error}");
    assert!(world.place.path().join("server-2.share").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_bundle_of_another_key_leaves_the_store_as_it_was() {
    let world = World::new(4);
    let config = world.config(1);
    let Running { node, socket, .. } = world.start(1).await;
    drop(socket);
    node.stop().await.unwrap();
    let opened = world.open(&config).await;
    let header = opened.store.saved().unwrap().start.unwrap().header().clone();
    let (own, other) = (opened.settings.public.clone(), large_key().group().public().clone());
    drop(opened);
    let at = world.place.path().join("group.bundle");
    let kept = world.place.path().join("store-1/group.bundle");
    let mut config = QuorumNodeConfig { bundle: Some(at.clone()), ..config };
    let write = |public: &RsaPublicKey| {
        let bundle = QuorumBundle::without_shares(public.clone(), header.clone());
        fs::write(&at, bundle.to_bytes()).unwrap();
    };
    write(&other);
    let differs = open(&config).await.err().unwrap();
    assert!(matches!(differs, NodeOpenError::OtherKey), "{differs}");
    // Without `public_key`, the state of the store decides.
    config.public_key = None;
    config.share = None;
    let differs = open(&config).await.err().unwrap();
    assert!(differs.to_string().contains("the store has another public key"), "{differs}");
    assert!(!kept.exists());
    write(&own);
    assert!(world.open(&config).await.settings.public == own);
    assert!(kept.exists());
}

/// The operator of the ceremony has mistyped the identity of server 2. Otherwise this server would
/// wait for ever.
#[tokio::test(flavor = "multi_thread")]
async fn a_ceremony_with_another_identity_at_this_address_is_refused() {
    let world = World::new(5);
    let (own, typed) = (identity(2).public().to_string(), identity(9).public().to_string());
    let group = parse_nodes(&world.nodes(1..=4).replace(&own, &typed)).unwrap();
    let mut generator = RandomGenerator::seeded().unwrap();
    let files = QuorumShareFile::deal(&small_key(), &group, UnixSeconds(0), &mut generator);
    let bundle = QuorumBundle::seal(&files.unwrap(), &mut generator).unwrap();
    let at = world.place.path().join("group.bundle");
    fs::write(&at, bundle.to_bytes()).unwrap();
    let bundle = Some(at);
    let config = QuorumNodeConfig { bundle, public_key: None, share: None, ..world.config(2) };
    let refused = open(&config).await.err().unwrap();
    assert!(matches!(refused, NodeOpenError::OtherIdentity { .. }), "{refused}");
    let text = refused.to_string();
    assert!(text.contains(&own) && text.contains(&typed) && text.lines().count() == 1, "{text}");
    // Elsewhere, a server that is not in the list waits for a refresh.
    let listen = vec![world.addresses[4]];
    let opened = world.open(&QuorumNodeConfig { listen, ..config }).await;
    assert!(opened.store.saved().unwrap().start.is_none());
}

/// A server that has lost its state, but has voted, takes no shares of the ceremony again.
#[tokio::test]
async fn a_store_that_has_lost_its_state_takes_no_shares_of_the_ceremony() {
    let world = World::new(4);
    let config = world.config(1);
    fs::create_dir(world.place.path().join("store-1")).unwrap();
    let log = world.place.path().join("store-1").join(crate::net::store::LOG_FILE);
    write_secret(&log, "a log");
    let lost = open(&config).await.err().unwrap();
    assert!(matches!(lost, NodeOpenError::LostState { .. }), "{lost}");
    assert!(world.place.path().join("server-1.share").exists());
    fs::remove_file(&log).unwrap();
    assert!(world.open(&config).await.store.saved().unwrap().start.is_some());
}

/// Its group has deleted the heights that it lacks.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_was_down_for_two_and_three_refreshes_has_shares_and_votes_again() {
    let world = World::new(4);
    let mut servers = Vec::new();
    for number in 1..=4 {
        servers.push(world.start_in_agreement(number).await);
    }
    let has_begun = async |server: &Running, epoch: u64| {
        until(&format!("epoch {epoch}"), async || {
            let status = server.node.handle().status("a".into());
            let header_signed = status.header_signed;
            status.health.ok && status.health.epoch == Some(epoch) && header_signed
        })
        .await;
    };
    let refresh = async |servers: &[&Running], epoch: u64| {
        for server in &servers[..2] {
            server.client.start_refresh(world.nodes(1..=4)).await.unwrap();
        }
        for server in servers {
            has_begun(server, epoch).await;
        }
    };
    let mut epoch = 1;
    for missed in [2, 3] {
        for (server, _) in &servers {
            has_begun(server, epoch).await;
        }
        let (Running { node, socket, .. }, _) = servers.pop().unwrap();
        drop(socket);
        node.stop().await.unwrap();
        let others: Vec<&Running> = servers.iter().map(|(server, _)| server).collect();
        for _ in 0..missed {
            epoch += 1;
            refresh(&others, epoch).await;
        }
        let (again, monitor) = world.start_in_agreement(4).await;
        has_begun(&again, epoch).await;
        until("it votes", async || {
            monitor.lock().unwrap().as_ref().is_some_and(|monitor| monitor.status().votes)
        })
        .await;
        servers.push((again, monitor));
    }
    // The log does not continue without its vote.
    let (Running { node, socket, .. }, _) = servers.remove(0);
    drop(socket);
    node.stop().await.unwrap();
    let others: Vec<&Running> = servers.iter().map(|(server, _)| server).collect();
    refresh(&others, epoch + 1).await;
    let message = Bytes::from_static(MESSAGE);
    for server in &others[1..] {
        server.client.register(message.clone()).await.unwrap();
    }
    let signature = others[2].client.sign(message, ApiEncoding::Pkcs1).await.unwrap();
    assert!(world.openssl_accepts(&signature));
}
