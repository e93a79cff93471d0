//! Servers with real links on loopback, stores in files and local users at their sockets. The log
//! is the one in memory.

use std::fs;
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command as Process;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use keys::{PublicKey, SecretKey};
use sharing::Generator;
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::*;
use crate::log::memory::MemoryLog;
use crate::net::api::{ApiSocket, Client, ClientError, Encoding, RefreshStep, SocketAccess};
use crate::net::ceremony_files;
use crate::net::nodes::parse_nodes;
use crate::protocol::ceremony::share_file::ShareFile;
use crate::protocol::fixture::small_key;
use crate::protocol::group::verify_chain;
use crate::protocol::server::Start;

const MESSAGE: &[u8] = b"addresses: 192.0.2.1\n";

/// How long to wait for what should take less than a second on an idle machine.
const WAIT_TIMEOUT: Duration = Duration::from_secs(40);

/// A place for all servers, with a key and the shares of the first four.
struct World {
    place: TempDir,
    addresses: Vec<SocketAddr>,
    log: MemoryLog,
}

struct Running {
    node: Node,
    socket: ApiSocket,
    client: Client,
}

fn identity(number: usize) -> SecretKey {
    SecretKey::new(&[u8::try_from(number).unwrap(); 32])
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
        let files = ShareFile::deal(&small_key(), &group, &mut Generator::seeded().unwrap());
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
    fn config(&self, number: usize) -> Config {
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
        Config::from_toml(&text).unwrap()
    }

    async fn start(&self, number: usize) -> Running {
        let config = self.config(number);
        let Opened { settings, store, network } = loop {
            match open(&config).await {
                Ok(opened) => break opened,
                // The task of the server before closes its listener soon.
                Err(error) if error.to_string().contains("Address already in use") => {
                    sleep(Duration::from_millis(5)).await;
                }
                Err(error) => panic!("{error}"),
            }
        };
        let (log, key): (_, PublicKey) = (self.log.clone(), identity(number).public());
        let start_log = move |start: LogStart| Ok(log.open(key, start.applied));
        let node = Node::start(settings, store, network, start_log).unwrap();
        let handle = Arc::new(node.handle());
        let socket = ApiSocket::open(&config.socket, SocketAccess::Owner, handle).unwrap();
        Running { node, socket, client: Client::new(&config.socket) }
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
    let refused = old[0].client.sign(message.clone(), Encoding::Pkcs1).await.unwrap_err();
    assert!(refused.is_forbidden(), "{refused}");
    for server in &old[..2] {
        assert!(server.client.register(message.clone()).await.unwrap().new);
    }
    let signature = old[0].client.sign(message.clone(), Encoding::Pkcs1).await.unwrap();
    assert!(world.openssl_accepts(&signature));
    let pss = old[1].client.sign(message.clone(), Encoding::Pss).await.unwrap();
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
        let refused = server.client.sign(message.clone(), Encoding::Pkcs1).await.unwrap_err();
        let is_expected = matches!(refused, ClientError::Refused { status: 403 | 503, .. });
        assert!(is_expected, "{refused}");
    }
    for server in &new[2..] {
        server.client.register(message.clone()).await.unwrap();
    }
    let again = new[3].client.sign(message.clone(), Encoding::Pkcs1).await.unwrap();
    assert_eq!(again, signature, "the same key makes the same signature");

    until("the chain has both epochs", async || {
        let headers = new[0].client.headers().await.unwrap();
        Start::parse_chain(&headers).unwrap().len() == 2
    })
    .await;
    let chain = Start::parse_chain(&new[0].client.headers().await.unwrap()).unwrap();
    let bytes: Vec<_> = chain.iter().map(|it| it.header.to_bytes()).collect();
    let pairs = bytes.iter().zip(&chain).map(|(bytes, it)| (&bytes[..], &it.signature[..]));
    let public = small_key().group().public().clone();
    let last = verify_chain(pairs, |message, signature| public.verify(message, signature));
    assert_eq!(last.unwrap().group, parse_nodes(&nodes).unwrap());
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
        let signature = server.client.sign(message.clone(), Encoding::Pkcs1).await.unwrap();
        assert!(world.openssl_accepts(&signature));
    }
    let again = world.start(2).await;
    until_healthy(std::slice::from_ref(&again)).await;
    // It has kept that the message is registered.
    let signature = again.client.sign(message.clone(), Encoding::Pkcs1).await.unwrap();
    assert!(world.openssl_accepts(&signature));
    let status = again.node.handle().status("a".into());
    assert_eq!((status.servers, status.index, status.signed), (4, Some(2), 1));
    assert!(status.has_shares && status.links.len() == 3);
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
