//! The key-value store of the guide to replicated services, as processes on loopback.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::symlink;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use bytes::Bytes;
use quorum::api::QuorumApiClient;
use quorum::replication::{ServiceAnswerError, ServiceRequest};
use random::RandomGenerator;

use super::group::{Group, Server, wait_until};

#[path = "../../../../../quorum/quorum/examples/replicated-store.rs"]
#[expect(dead_code, reason = "its main function")]
mod store;

const GUIDE: &str = include_str!("../../../../../../docs/guides/replicated-service.md");

/// The variable with the configuration of a server that runs in this program.
const CONFIG: &str = "REPLICATED_STORE";

/// Not a test: a server of the store, in a process of its own.
#[test]
#[ignore = "a server for the test below"]
fn replicated_store_process() {
    if let Ok(config) = std::env::var(CONFIG) {
        eprintln!("{:?}", store::run(&["serve", &config]));
    }
}

fn start(group: &Group, number: usize) -> Server {
    let log = File::options().create(true).append(true).open(group.path(&format!("{number}.log")));
    let test = "quorum::replicated_store::replicated_store_process";
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", test, "--ignored", "--nocapture"])
        .env(CONFIG, format!("{number}.toml"))
        .env("RUNTIME_DIRECTORY", group.place.path())
        .current_dir(group.place.path())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log.unwrap())
        .spawn();
    Server(child.unwrap())
}

/// The identities of all servers, by number.
fn identities(group: &Group) -> Vec<String> {
    let nodes = fs::read_to_string(group.path("nodes.toml")).unwrap();
    let lines = nodes.lines().filter_map(|line| line.strip_prefix("identity = "));
    lines.map(|it| it.trim_matches('"').to_owned()).collect()
}

/// Runs a command of a client.
fn client(group: &Group, arguments: &[&str]) -> Result<String, String> {
    let (public, sockets) = (group.path("made/public.pem"), group.path("sockets"));
    let (public, sockets) = (public.to_str().unwrap(), sockets.to_str().unwrap());
    let arguments = [&[arguments[0], public, sockets], &arguments[1..]].concat();
    store::run(&arguments).map_err(|why| why.to_string())
}

/// A server that gives this answer to each command, and these headers.
fn lie(socket: &Path, answer: Vec<u8>, headers: Vec<u8>) {
    let listener = UnixListener::bind(socket).unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            let is_get = read_request(&mut stream).starts_with(b"GET");
            let body = if is_get { &headers } else { &answer };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", body.len());
            // The client may be gone.
            let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body));
        }
    });
}

fn read_request(stream: &mut UnixStream) -> Vec<u8> {
    let (mut request, mut part) = (Vec::new(), [0; 4096]);
    loop {
        let len = stream.read(&mut part).unwrap_or(0);
        request.extend(&part[..len]);
        let text = String::from_utf8_lossy(&request).into_owned();
        let head = text.find("\r\n\r\n");
        let length = text.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |it| it.parse().unwrap());
        if len == 0 || head.is_some_and(|head| request.len() >= head + 4 + length) {
            return request;
        }
    }
}

/// Sends a command to one server, as a client. Returns the request and the answer, not verified.
fn raw_command(socket: &Path, command: &[u8]) -> (ServiceRequest, Bytes) {
    let mut generator = RandomGenerator::seeded().unwrap();
    let request = ServiceRequest::new("replicated-store", command, &mut generator).unwrap();
    let server = QuorumApiClient::new(socket);
    let answer = server.command(request.as_bytes().to_vec().into());
    (request, tokio::runtime::Runtime::new().unwrap().block_on(answer).unwrap())
}

#[test]
fn a_replicated_store_answers_despite_a_dead_and_a_lying_server_and_moves() {
    let group = Group::new(8);
    let mut servers: Vec<Server> = (1..=4).map(|number| start(&group, number)).collect();
    group.wait_until_healthy(1..=4);
    fs::create_dir(group.path("sockets")).unwrap();
    let identities = identities(&group);
    let socket = |number: usize| group.path("sockets").join(&identities[number - 1]);
    for number in 1..=4 {
        symlink(group.path(&format!("{number}.api")), socket(number)).unwrap();
    }

    // A healthy group signs its first header a moment later.
    wait_until("the group answers", || client(&group, &["get", "size"]).is_ok());

    // The guide.
    let block = |kind: &str| {
        let block = GUIDE.split(&format!("```{kind}\n")).nth(1).unwrap();
        block.split("```").next().unwrap().lines().map(str::to_owned).collect::<Vec<_>>()
    };
    let printed = block("sh").into_iter().map(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[2..4], ["public.pem", "sockets"]);
        client(&group, &[&words[1..2], &words[4..]].concat()).unwrap()
    });
    assert_eq!(printed.collect::<Vec<_>>(), block("text"));

    // `sunder status` shows the servers, and the first one has answered all of this.
    let page = group.status(&[]);
    assert_eq!(page.matches("service replicated-store: answered ").count(), 4, "{page}");
    let metrics = group.status(&["--metrics"]);
    let value = |metric: &str| {
        let line = metrics.lines().find_map(|line| line.strip_prefix(metric));
        line.unwrap_or_else(|| panic!("{metric}: {metrics}")).trim().parse::<u64>().unwrap()
    };
    let of_first = "service=\"quorum\",name=\"1\"";
    for (metric, least) in [
        (format!("sunder_quorum_service_has_state{{{of_first}}}"), 1),
        (format!("sunder_quorum_service_requests_total{{{of_first},result=\"answered\"}}"), 6),
        (format!("sunder_quorum_service_log_bytes{{{of_first}}}"), 6 * 32),
        (format!("sunder_quorum_service_log_limit_bytes{{{of_first}}}"), 16 << 20),
    ] {
        assert!(value(&metric) >= least, "{metric}: {metrics}");
    }

    // Server 1 is killed. Server 2 sends an old answer, and headers that the group has not signed.
    let old = raw_command(&group.path("2.api"), b"get\0colour");
    let public = keys::RsaPublicKey::read(&group.path("made/public.pem")).unwrap();
    assert_eq!(old.0.verify(&public, &old.1).unwrap().answer, b"value green");
    assert_eq!(client(&group, &["put", "colour", "black"]).unwrap(), "ok");
    let again = raw_command(&group.path("2.api"), b"get\0colour");
    assert_eq!(again.0.verify(&public, &old.1), Err(ServiceAnswerError::OtherRequest));
    drop(servers.remove(0));
    group.run(&["headers", "--socket", "2.api", "headers"]);
    let mut headers = fs::read(group.path("headers")).unwrap();
    headers[60] ^= 1;
    fs::remove_file(socket(2)).unwrap();
    lie(&socket(2), old.1.to_vec(), headers);
    assert_eq!(client(&group, &["get", "colour"]).unwrap(), "value black");
    let unknown = client(&group, &["swap", "colour", "black", "white"]).unwrap_err();
    assert!(unknown.contains("not known"), "{unknown}");
    fs::remove_file(socket(2)).unwrap();
    symlink(group.path("2.api"), socket(2)).unwrap();
    servers.insert(0, start(&group, 1));
    group.wait_until_healthy([1]);

    // It moves to four other servers while a client writes. The client knows only the public key.
    servers.extend((5..=8).map(|number| start(&group, number)));
    (5..=8).for_each(|it| group.wait_until_listening(it));
    (5..=8).for_each(|it| symlink(group.path(&format!("{it}.api")), socket(it)).unwrap());
    let is_over = AtomicBool::new(false);
    let written = thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let mut written = Vec::new();
            while !is_over.load(Ordering::Relaxed) {
                let key = format!("key {}", written.len());
                // Between two groups there may be no answer for a moment.
                while client(&group, &["put", &key, "written"]).is_err() {}
                written.push(key);
            }
            written
        });
        group.run(&["refresh", "--no-wait", "--socket", "1.api", "--to", "new.toml"]);
        let done = group.run(&["refresh", "--socket", "2.api", "--to", "new.toml"]);
        assert_eq!(done, "epoch 2 has begun\n");
        group.wait_until_healthy(5..=8);
        is_over.store(true, Ordering::Relaxed);
        writer.join().unwrap()
    });
    // The old servers are gone, and all that a client was told is there.
    servers.drain(..4);
    wait_until("the new group answers", || {
        client(&group, &["get", "colour"]).is_ok_and(|answer| answer == "value black")
    });
    assert!(!written.is_empty());
    for key in written {
        assert_eq!(client(&group, &["get", &key]).unwrap(), "value written", "{key}");
    }
    // One of the new servers loses its disk, and has the state again.
    drop(servers.remove(0));
    fs::remove_dir_all(group.path("store-5")).unwrap();
    let peers = fs::read_to_string(group.path("5.toml")).unwrap();
    let nodes = fs::read_to_string(group.path("new.toml")).unwrap();
    let (settings, _) = peers.split_once("[[peer]]").unwrap();
    let others = nodes.replace("[[server]]", "[[peer]]");
    let others = others.split_inclusive("[[peer]]\n").skip(2).collect::<String>();
    fs::write(group.path("5.toml"), format!("{settings}[[peer]]\n{others}")).unwrap();
    servers.push(start(&group, 5));
    group.wait_until_healthy([5]);
    wait_until("server 5 has the state", || {
        let mut generator = RandomGenerator::seeded().unwrap();
        let request = ServiceRequest::new("replicated-store", b"get\0colour", &mut generator);
        let request = request.unwrap();
        let server = QuorumApiClient::new(&group.path("5.api"));
        let answer = server.command(request.as_bytes().to_vec().into());
        let answer = tokio::runtime::Runtime::new().unwrap().block_on(answer);
        answer.is_ok_and(|it| request.verify(&public, &it).unwrap().answer == b"value black")
    });
}
