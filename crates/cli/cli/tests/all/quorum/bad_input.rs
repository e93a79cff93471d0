//! What outsiders, servers and local users may not send: it is refused, counted, and named in one
//! line of the log, and the state stays as it was.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::process::Command;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use keys::{IdentityPublicKey, IdentitySecretKey};
use quorum::links::{LinkLane, LinkTopic, QuorumLinks, QuorumPeer, TopicInbox};
use serde_json::Value;
use tokio::runtime::Runtime;

use super::group::{Group, Server, wait_until};

/// The lengths of a hello and of the answer to it.
const HELLO_LEN: usize = 137;
const REPLY_LEN: usize = 49;

fn identity(number: usize) -> IdentitySecretKey {
    IdentitySecretKey::new(&[u8::try_from(number).unwrap(); 32])
}

fn public(number: usize) -> IdentityPublicKey {
    identity(number).public()
}

/// A group of which one server, played by the test, sends what it likes to another.
struct Attack {
    group: Group,
    runtime: Runtime,
    target: usize,
    faulty: usize,
    _servers: Vec<Server>,
}

impl Attack {
    fn new() -> Self {
        let group = Group::new(4);
        // The server with the smaller key connects.
        let by_key = |number: &usize| public(*number).to_bytes();
        let (target, faulty) =
            ((1..=4).max_by_key(by_key).unwrap(), (1..=4).min_by_key(by_key).unwrap());
        let others: Vec<usize> = (1..=4).filter(|number| *number != faulty).collect();
        let servers = others.iter().map(|number| group.start(*number)).collect();
        group.wait_until_healthy(others);
        Self { group, runtime: Runtime::new().unwrap(), target, faulty, _servers: servers }
    }

    fn peer(&self) -> QuorumPeer {
        let address = self.group.addresses[self.target - 1].parse().unwrap();
        QuorumPeer { key: public(self.target), address }
    }

    /// The complete lines of a file to which the server may append just now. A line that crosses
    /// a page of the file is there in part until the system has copied the rest, although it is
    /// written at once.
    fn lines(&self, name: &str) -> Vec<String> {
        let text = fs::read(self.group.path(name)).unwrap();
        let lines = text.split_inclusive(|byte| *byte == b'\n');
        let complete = lines.filter_map(|line| line.strip_suffix(b"\n"));
        complete.map(|line| String::from_utf8(line.to_vec()).unwrap()).collect()
    }

    /// The warnings of the server.
    fn warnings(&self) -> Vec<String> {
        let mut lines = self.lines(&format!("{}.log", self.target));
        lines.retain(|line| line.contains("WARN"));
        lines
    }

    /// The refusals in the audit log.
    fn audited(&self) -> Vec<Value> {
        let lines = self.lines(&format!("store-{}/audit.log", self.target));
        let lines = lines.iter().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line["event"] == "refused").collect()
    }

    fn status(&self) -> Value {
        let output = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(["status", "--json"])
            .env("RUNTIME_DIRECTORY", self.group.place.path())
            .output()
            .unwrap();
        let all: Value = serde_json::from_slice(&output.stdout).unwrap();
        let name = self.target.to_string();
        find(&all, &|it| it["name"] == name.as_str() && it.get("refused_connections").is_some())
            .unwrap_or_else(|| panic!("{all}"))
    }

    /// What must not change.
    fn state(&self) -> Value {
        let status = self.status();
        let health = &status["health"];
        let of = ["has_shares", "index", "signed", "refresh", "wrong_answers"];
        let mut state: Vec<Value> = of.iter().map(|name| status[*name].clone()).collect();
        state.extend([health["ok"].clone(), health["epoch"].clone(), health["height"].clone()]);
        state.into()
    }

    fn refused_connections(&self) -> u64 {
        self.status()["refused_connections"].as_u64().unwrap()
    }

    fn refused_messages(&self) -> u64 {
        let status = self.status();
        let key = public(self.faulty).to_string();
        let link = find(&status, &|it| it["server"] == key.as_str()).expect("a link");
        link["refused_messages"].as_u64().unwrap()
    }

    /// Does something for which `count` grows by one, and the log by a line with these words.
    fn refused(&self, words: &str, count: impl Fn() -> u64, act: impl FnOnce()) {
        let (lines, before) = (self.warnings().len(), count());
        act();
        let deadline = Instant::now() + Duration::from_secs(60);
        while count() == before || self.warnings().len() == lines {
            assert!(
                Instant::now() < deadline,
                "{words}: {}{}",
                count() - before,
                self.group.logs()
            );
            thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(count(), before + 1, "{words}");
        let warnings = self.warnings()[lines..].to_vec();
        assert!(warnings.len() == 1 && warnings[0].contains(words), "{words}: {warnings:#?}");
    }
}

/// The first object in a document for which something holds.
fn find(document: &Value, holds: &dyn Fn(&Value) -> bool) -> Option<Value> {
    match document {
        Value::Object(fields) if holds(document) => Some(fields.clone().into()),
        Value::Object(fields) => fields.values().find_map(|it| find(it, holds)),
        Value::Array(items) => items.iter().find_map(|it| find(it, holds)),
        _ => None,
    }
}

/// The first message that a server with this key sends to one with that key.
fn hello(runtime: &Runtime, from: IdentitySecretKey, to: IdentityPublicKey) -> [u8; HELLO_LEN] {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let _guard = runtime.enter();
    let (links, _inboxes) = QuorumLinks::start(from, Vec::new());
    links.set_peers(&[QuorumPeer { key: to, address: listener.local_addr().unwrap().into() }]);
    let mut hello = [0; HELLO_LEN];
    listener.accept().unwrap().0.read_exact(&mut hello).unwrap();
    hello
}

#[test]
fn outsiders_are_refused() {
    let attack = Attack::new();
    let state = attack.state();
    let (target, address) = (public(attack.target), &attack.group.addresses[attack.target - 1]);
    // A key of no server of the group, or of none any more.
    let stranger = (5..200).find(|it| public(*it).to_bytes() < target.to_bytes()).unwrap();
    let is_called = |it: &usize| public(*it).to_bytes() > public(stranger).to_bytes();
    let other = public((200..250).find(is_called).unwrap());
    let hello = |from: usize, to: IdentityPublicKey| hello(&attack.runtime, identity(from), to);
    let other_version = [&b"SNDRLINK\x09"[..], &[0; 128]].concat();
    let cases: [(&str, Vec<u8>); 7] = [
        ("the peer is not a server of a group", vec![b'x'; HELLO_LEN]),
        ("early eof", b"SNDRLINK\x01".to_vec()),
        ("it uses version 9 of the link protocol", other_version),
        ("is not that of a server that may connect here", hello(stranger, target).to_vec()),
        ("it expects a server with another key here", hello(stranger, other).to_vec()),
        ("it has not proven its key", hello(attack.faulty, target).to_vec()),
        ("not proven within 5 s", Vec::new()),
    ];
    for (words, bytes) in cases {
        attack.refused(
            words,
            || attack.refused_connections(),
            || {
                let mut stream = TcpStream::connect(address).unwrap();
                stream.write_all(&bytes).unwrap();
                match words {
                    "early eof" => stream.shutdown(Shutdown::Write).unwrap(),
                    // A recorded hello: its sender's next record cannot be made up.
                    "it has not proven its key" => {
                        stream.read_exact(&mut [0; REPLY_LEN]).unwrap();
                        stream.write_all(&[7; 27]).unwrap();
                    }
                    _ => {}
                }
                // Until the server closes the connection.
                let _ = stream.read_to_end(&mut Vec::new());
            },
        );
    }
    assert_eq!(attack.state(), state);
}

/// The links of the faulty server.
struct Faulty {
    links: QuorumLinks,
    _inboxes: [TopicInbox; 3],
}

#[test]
fn a_faulty_server_is_refused() {
    let attack = Attack::new();
    let own = public(attack.faulty).to_bytes();
    let links = {
        let _guard = attack.runtime.enter();
        let (links, inboxes) = QuorumLinks::start(identity(attack.faulty), Vec::new());
        links.set_peers(&[attack.peer()]);
        Faulty { links, _inboxes: inboxes }.into_connected(&attack)
    };
    let state = attack.state();
    let height = state.as_array().unwrap().last().unwrap().as_u64().unwrap() + 1;
    let request = |epoch: u64, message: &[u8]| {
        let mut bytes = [&[1][..], &7_u64.to_be_bytes()].concat();
        bytes.extend(epoch.to_be_bytes());
        bytes.extend([0, 0, 1]);
        bytes.extend(message);
        bytes
    };
    let vote = |address: [u8; 32]| {
        let mut bytes = vec![2, 1];
        bytes.extend(height.to_be_bytes());
        bytes.extend([0; 5]);
        bytes.extend(address);
        bytes.extend([9; 64]);
        bytes
    };
    let mut value = own.to_vec();
    value.extend([0, 0, 0, 1, b'x']);
    let committed = [&[8][..], &height.to_be_bytes(), &[0; 8], &value].concat();
    let long = vec![7; (1 << 20) + 1];
    let cases: [(LinkTopic, &str, Vec<u8>); 14] = [
        (LinkTopic::Signing, "unknown kind", [[9; 9]].concat()),
        (LinkTopic::Signing, "a request for a signature of epoch 7", request(7, b"message")),
        (LinkTopic::Signing, "a malformed request for a signature", request(1, b"")[..17].to_vec()),
        (LinkTopic::Signing, "a malformed request for a signature", request(1, &long)),
        (LinkTopic::Refresh, "unknown kind of message", Vec::new()),
        (LinkTopic::Refresh, "unknown kind of message", vec![1, 99]),
        (LinkTopic::Refresh, "too short", vec![1, 4, 0]),
        (LinkTopic::Log, "too short", Vec::new()),
        (LinkTopic::Log, "unknown message", vec![99]),
        (LinkTopic::Log, "too short", vec![2, 1]),
        (LinkTopic::Log, "unknown message", [&[1][..], &long].concat()),
        (LinkTopic::Log, "a vote of another server", vote(public(attack.target).to_bytes())),
        (LinkTopic::Log, "a wrong signature", vote(own)),
        (LinkTopic::Log, "a wrong signature or certificate", committed),
    ];
    for (topic, words, bytes) in cases {
        attack.refused(
            words,
            || attack.refused_messages(),
            || {
                // Bulk messages of the other topics end the link.
                let lane =
                    if topic == LinkTopic::Refresh { LinkLane::Bulk } else { LinkLane::Urgent };
                links.links.send(&public(attack.target), topic, lane, bytes.into()).unwrap();
            },
        );
    }
    // A client may still be registering the message, so the first of these two does not count.
    attack.refused(
        "a request for a signature of epoch 7",
        || attack.refused_messages(),
        || {
            for bytes in [request(1, b"message"), request(7, b"message")] {
                let (to, lane) = (public(attack.target), LinkLane::Urgent);
                links.links.send(&to, LinkTopic::Signing, lane, bytes.into()).unwrap();
            }
        },
    );
    assert_eq!(attack.state(), state);
    assert!(links.links.status()[0].up, "the link stays");
}

impl Faulty {
    fn into_connected(self, attack: &Attack) -> Self {
        wait_until("there is a link", || self.links.status()[0].up);
        let key = public(attack.faulty).to_string();
        wait_until("the server says so", || {
            let link = find(&attack.status(), &|it| it["server"] == key.as_str());
            link.is_some_and(|link| link["up"] == true)
        });
        self
    }
}

#[test]
fn local_users_are_refused() {
    let attack = Attack::new();
    let state = attack.state();
    let post = |path: &str, body: &[u8]| {
        let len = body.len();
        let head = format!("POST {path} HTTP/1.1\r\nhost: x\r\ncontent-length: {len}\r\n\r\n");
        [head.as_bytes(), body].concat()
    };
    let other = |line: &str| format!("{line} HTTP/1.1\r\nhost: x\r\n\r\n").into_bytes();
    let long = vec![7; (1 << 20) + 1];
    let cut = b"POST /v1/messages HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nabc".to_vec();
    let cases: [(&str, &str, Vec<u8>); 12] = [
        (
            "register",
            "the message begins like a header",
            post("/v1/messages", b"SNDR-QUORUM-HDR\0"),
        ),
        ("register", "the body has more than", post("/v1/messages", &long)),
        ("register", "the body was cut off", cut),
        ("sign", "the message is not registered here", post("/v1/signatures", b"message")),
        ("refresh", "the list of servers", post("/v1/refreshes", b"servers = 4")),
        ("refresh", "text in UTF-8", post("/v1/refreshes", &[255])),
        ("health", "takes no body", post("/v1/health", b"x")),
        ("request", "there is no such path", other("GET /v1/nothing")),
        ("request", "this path takes POST only", other("GET /v1/messages")),
        ("request", "the query must be", post("/v1/signatures?encoding=md5", b"message")),
        ("request", "takes no query", other("GET /v1/health?all")),
        ("request", "it is not HTTP/1.1", b"\0\r\n\r\n".to_vec()),
    ];
    let attack = Arc::new(attack);
    for (request, words, mut bytes) in cases {
        if words == "takes no body" {
            bytes = post("/v1/health", b"x");
            bytes.splice(..4, *b"GET");
        }
        attack.refused(
            words,
            || attack.audited().len() as u64,
            || {
                let socket = attack.group.path(&format!("{}.api", attack.target));
                let mut stream = UnixStream::connect(socket).unwrap();
                // The server may have closed before it has read all of it.
                let _ = stream.write_all(&bytes);
                if words == "the body was cut off" {
                    stream.shutdown(Shutdown::Write).unwrap();
                }
                let mut answer = [0; 12];
                // Nothing answers who has gone.
                let _ = stream.read_exact(&mut answer);
                assert!(answer == [0; 12] || answer.starts_with(b"HTTP/1.1 4"), "{words}");
            },
        );
        let line = attack.audited().pop().unwrap();
        assert_eq!((&line["request"], &line["count"]), (&request.into(), &1.into()), "{line}");
        assert!(line["reason"].as_str().unwrap().contains(&words[..words.len().min(60)]), "{line}");
    }
    assert_eq!(attack.state(), state);
}
