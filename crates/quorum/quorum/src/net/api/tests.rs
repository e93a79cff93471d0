mod clients;
mod document;

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::policy::MessageDigest;
use crate::protocol::group::GroupKeyKind;
use crate::protocol::policy::check_message;
use document::assert_documented;

/// Answers from memory.
#[derive(Default)]
struct Fake {
    registered: Mutex<BTreeSet<Vec<u8>>>,
    refused: Mutex<Vec<(&'static str, String)>>,
    is_ill: bool,
    /// How it refuses to sign any message.
    refusal: Option<ApiRefusal>,
    /// What it returns as the signature of any message, if it is not empty.
    signature: Vec<u8>,
}

fn state(step: RefreshStep) -> RefreshStatus {
    let address = "192.0.2.1:6530".parse().unwrap();
    let awaited = AwaitedServer { server: 4, identity: "0a".repeat(32), address, connected: false };
    RefreshStatus {
        epoch: 2,
        step,
        done: 1,
        of: 2,
        waiting_for: vec![awaited],
        cancelled: 0,
        cancelled_of: 2,
        problem: "different lists".into(),
        remedy: "approve one".into(),
    }
}

/// What waits, with a value for each field.
fn waiting() -> PendingReview {
    let identity = "0a".repeat(32);
    let (address, time) = ("192.0.2.1:6530".parse().unwrap(), "2026-12-06T00:00:00Z".to_owned());
    let registration = |server, len| PendingRegistration {
        server,
        identity: identity.clone(),
        digest: "0b".repeat(32),
        len,
        first: "6d65".into(),
        uid: len.map(|_| 1000),
        registered: time.clone(),
        until: time.clone(),
    };
    let source = |server, age_s| PendingSource {
        server,
        identity: identity.clone(),
        registrations: 1,
        age_s,
    };
    let change =
        |change, before| ListChange { change, identity: identity.clone(), address, before };
    let list = ProposedList {
        group: "0c".repeat(32),
        epoch: 2,
        approved_by: vec![1],
        needed: 2,
        begun: false,
        until: Some(time.clone()),
        servers: vec![ListedServer { identity: identity.clone(), address }],
        changes: vec![
            change(ListChangeKind::Added, None),
            change(ListChangeKind::Removed, None),
            change(ListChangeKind::Moved, Some(address)),
        ],
    };
    PendingReview {
        registrations: vec![registration(Some(1), Some(7)), registration(None, None)],
        servers: vec![source(Some(1), Some(0)), source(None, None)],
        lists: vec![ProposedList { until: None, ..list.clone() }, list],
    }
}

impl LocalService for Fake {
    async fn register(
        &self,
        message: Bytes,
        caller: ApiCaller,
    ) -> Result<RegisterResponse, ApiRefusal> {
        let (uid, gid) = (rustix::process::geteuid(), rustix::process::getegid());
        let expected = ApiCaller { uid: Some(uid.as_raw()), gid: Some(gid.as_raw()) };
        assert_eq!(caller, expected);
        check_message(&message, GroupKeyKind::Rsa)
            .map_err(|why| ApiRefusal::new(ApiRefusalKind::Forbidden, why))?;
        let digest = MessageDigest::of(&message).to_string();
        let new = self.registered.lock().unwrap().insert(message.to_vec());
        Ok(RegisterResponse { digest, new, until: "2026-12-06T00:00:00Z".into() })
    }

    async fn withdraw(&self, digest: MessageDigest, _: ApiCaller) -> Result<(), ApiRefusal> {
        let mut registered = self.registered.lock().unwrap();
        let before = registered.len();
        registered.retain(|message| MessageDigest::of(message) != digest);
        let missing = || ApiRefusal::new(ApiRefusalKind::NotFound, "not registered");
        (registered.len() < before).then_some(()).ok_or_else(missing)
    }

    async fn registered_message(&self, digest: MessageDigest) -> Result<Vec<u8>, ApiRefusal> {
        let registered = self.registered.lock().unwrap();
        let found = registered.iter().find(|message| MessageDigest::of(message) == digest);
        found.cloned().ok_or_else(|| ApiRefusal::new(ApiRefusalKind::NotFound, "not registered"))
    }

    async fn pending(&self) -> Result<PendingReview, ApiRefusal> {
        Ok(waiting())
    }

    async fn withdraw_approval(&self, _: ApiCaller) -> Result<(), ApiRefusal> {
        let none = || ApiRefusal::new(ApiRefusalKind::Conflict, "there is none");
        (!self.is_ill).then_some(()).ok_or_else(none)
    }

    fn bundle(&self) -> Result<Vec<u8>, ApiRefusal> {
        let none = || ApiRefusal::new(ApiRefusalKind::Unavailable, "no group");
        (!self.is_ill).then(|| vec![1, 2]).ok_or_else(none)
    }

    async fn sign(
        &self,
        message: Bytes,
        encoding: Option<ApiEncoding>,
        _: ApiCaller,
    ) -> Result<Vec<u8>, ApiRefusal> {
        if let Some(refusal) = &self.refusal {
            return Err(refusal.clone());
        }
        if !self.signature.is_empty() {
            return Ok(self.signature.clone());
        }
        if !self.registered.lock().unwrap().contains(&message[..]) {
            return Err(ApiRefusal::new(ApiRefusalKind::Forbidden, "not\nregistered"));
        }
        let encoding = encoding.unwrap_or_default();
        Ok([encoding.name().as_bytes(), b" ", &message].concat())
    }

    async fn command(&self, request: Bytes, _: ApiCaller) -> Result<Vec<u8>, ApiRefusal> {
        Ok([b"answer to ", &request[..]].concat())
    }

    async fn start_refresh(
        &self,
        nodes: String,
        _: ApiCaller,
    ) -> Result<RefreshStatus, ApiRefusal> {
        if nodes.is_empty() {
            return Err(ApiRefusal::new(ApiRefusalKind::Malformed, "no nodes"));
        }
        Ok(state(RefreshStep::Approving))
    }

    async fn cancel_refresh(&self, _: ApiCaller) -> Result<RefreshStatus, ApiRefusal> {
        let none = || ApiRefusal::new(ApiRefusalKind::Conflict, "there is none");
        (!self.is_ill).then_some(state(RefreshStep::Cancelled)).ok_or_else(none)
    }

    fn refresh(&self) -> Option<RefreshStatus> {
        (!self.is_ill).then_some(state(RefreshStep::Done))
    }

    fn witnesses(&self) -> Result<EpochWitnesses, ApiRefusal> {
        Ok(EpochWitnesses { epoch: 1, witnesses: vec!["0a".into(); 4] })
    }

    fn public_key(&self) -> Result<String, ApiRefusal> {
        let none = || ApiRefusal::new(ApiRefusalKind::Unavailable, "no key");
        (!self.is_ill).then(|| "-----BEGIN PUBLIC KEY-----\n".to_owned()).ok_or_else(none)
    }

    fn headers(&self) -> Result<Vec<u8>, ApiRefusal> {
        Ok(vec![0, 255])
    }

    fn health(&self) -> NodeHealth {
        let problem = if self.is_ill { "no shares" } else { "" }.to_owned();
        let (epoch, height, waiting_s, connected, needed) = (Some(1), 7, None, 3, 1);
        let (ok, problem_s) = (!self.is_ill, self.is_ill.then_some(5));
        let warning = String::new();
        NodeHealth { ok, problem, problem_s, warning, epoch, height, waiting_s, connected, needed }
    }

    fn refused(&self, request: &'static str, reason: &str, _: ApiCaller) {
        self.refused.lock().unwrap().push((request, reason.to_owned()));
    }
}

struct Served {
    runtime: Runtime,
    place: TempDir,
    fake: Arc<Fake>,
    _socket: ApiSocket,
}

impl Served {
    fn new(fake: Fake) -> Self {
        Self::allowing(fake, ApiPermissions::ALL)
    }

    fn allowing(fake: Fake, allowed: ApiPermissions) -> Self {
        let (runtime, place) = (Runtime::new().unwrap(), TempDir::new().unwrap());
        let fake = Arc::new(fake);
        let socket = {
            let _guard = runtime.enter();
            ApiSocket::open(
                &place.path().join("socket"),
                &SocketAccess::Owner,
                allowed,
                64,
                Arc::clone(&fake),
            )
        };
        Self { runtime, place, fake, _socket: socket.unwrap() }
    }

    fn path(&self) -> PathBuf {
        self.place.path().join("socket")
    }

    fn client(&self) -> QuorumApiClient {
        QuorumApiClient::new(&self.path())
    }

    /// The status, the content type and the body of the answer to a request.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> (u16, String, Vec<u8>) {
        let len = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n"
        );
        self.exchange(&[head.as_bytes(), body].concat())
    }

    fn exchange(&self, request: &[u8]) -> (u16, String, Vec<u8>) {
        let mut stream = UnixStream::connect(self.path()).unwrap();
        // The server may close before all is written.
        let _ = stream.write_all(request);
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        let head = String::from_utf8(answer[..end].to_vec()).unwrap().to_lowercase();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let content_type = head.lines().find_map(|line| line.strip_prefix("content-type: "));
        (status, content_type.unwrap_or_default().to_owned(), answer[end + 4..].to_vec())
    }
}

/// Before the end of the time limit of a request's header, which is 10 s.
const SOON: Duration = Duration::from_secs(8);

/// All connections that are served at a time are kept open, without a request or after one.
#[test]
fn idle_connections_do_not_block_new_ones() {
    let mut times = Vec::new();
    // Without it, they wait for that time limit. A busy machine may delay some.
    let is_soon = (0..3).any(|_| {
        let took = time_beside_idle_connections();
        times.push(took);
        took < SOON
    });
    assert!(is_soon, "three times: {times:?}");
}

/// The time of some requests beside connections that are kept open. The limits of those begin
/// within it.
fn time_beside_idle_connections() -> Duration {
    let begun = Instant::now();
    let served = Served::new(Fake::default());
    let mut kept: Vec<UnixStream> = Vec::new();
    for place in 0..64 {
        let mut stream = UnixStream::connect(served.path()).unwrap();
        if place % 2 == 0 {
            stream.write_all(b"GET /v1/health HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
            assert!(stream.read(&mut [0; 1000]).unwrap() > 0);
        }
        kept.push(stream);
    }
    for _ in 0..4 {
        assert_eq!(served.ask("GET", "/v1/health", b"").0, 200);
    }
    let took = begun.elapsed();
    let is_open = |stream: &mut UnixStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0; 1000]).is_err()
    };
    let open = kept.iter_mut().map(is_open).filter(|is_open| *is_open).count();
    // Later, the limits close them.
    let is_right = open >= 32 || took >= SOON;
    assert!(is_right, "{open} of 64 are left open: no more are closed than places are needed");
    took
}

#[test]
fn a_request_that_is_too_long_or_unknown_is_refused_in_one_line() {
    let served = Served::new(Fake::default());
    let long = vec![0; MAX_BODY_LEN + 1];
    let answer = served.ask("POST", "/v1/messages", &long);
    assert_eq!(answer.0, 413);
    assert_documented("POST", "/v1/messages", &answer);
    assert_eq!(served.fake.refused.lock().unwrap()[0].0, "register");
    assert_eq!(served.ask("POST", "/v1/messages", &long[1..]).0, 201);

    let refusal = |method, path| {
        let (status, _, body) = served.ask(method, path, b"");
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        (status, body["error"].as_str().unwrap().to_owned())
    };
    let (status, reason) = refusal("GET", "/v1/other");
    assert!(status == 404 && reason.contains("/v1/openapi.json"), "{reason}");
    assert_eq!(
        refusal("PUT", "/v1/refreshes"),
        (405, "this path takes POST, GET, DELETE only".into())
    );
    assert_eq!(served.exchange(b"nonsense\r\n\r\n").0, 400);
}

#[test]
fn truncated_body_registers_nothing() {
    let served = Served::new(Fake::default());
    let mut stream = UnixStream::connect(served.path()).unwrap();
    stream
        .write_all(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\nshort")
        .unwrap();
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = stream.read_to_end(&mut Vec::new());
    assert!(served.fake.registered.lock().unwrap().is_empty());
}

#[test]
fn the_socket_is_for_whom_the_configuration_says() {
    let (runtime, place) = (Runtime::new().unwrap(), TempDir::new().unwrap());
    let _guard = runtime.enter();
    let path = place.path().join("socket");
    let open = |access: &SocketAccess| {
        ApiSocket::open(&path, access, ApiPermissions::ALL, 64, Arc::new(Fake::default()))
    };
    let own = rustix::process::getegid().as_raw().to_string();
    for (access, mode) in [
        (SocketAccess::Owner, 0o600),
        (SocketAccess::Group, 0o660),
        (SocketAccess::NamedGroup(own), 0o660),
    ] {
        let socket = open(&access).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, mode);
        let again = open(&access).unwrap_err().to_string();
        assert!(again.contains("in use by another process"), "{again}");
        drop(socket);
        assert!(!path.exists());
    }
    let missing = open(&SocketAccess::NamedGroup("no such group".into())).unwrap_err().to_string();
    assert!(missing.contains("groupadd no such group") && !path.exists(), "{missing}");
    std::fs::write(&path, "a file").unwrap();
    let refused = open(&SocketAccess::Owner).unwrap_err().to_string();
    assert!(refused.contains("is not a socket") && path.exists(), "{refused}");
}

/// A method, a path, a body, the permissions that allow it, and the setting that an error names.
type LimitedOperation<'a> = (&'a str, &'a str, &'a [u8], [bool; 3], &'a str);

/// A user with one permission can do nothing else, and is told which one is missing.
#[test]
fn each_permission_allows_its_operations_and_no_others() {
    let none = ApiPermissions::default();
    let of_message = &format!("/v1/messages/{}", MessageDigest::of(b"message"));
    let operations: &[LimitedOperation<'_>] = &[
        ("POST", "/v1/messages", b"message", [false, true, false], "register_socket"),
        ("POST", "/v1/signatures", b"message", [true, false, false], "`socket`"),
        ("POST", "/v1/refreshes", b"[[node]]", [false, false, true], "admin_socket"),
        ("DELETE", "/v1/refreshes", b"", [false, false, true], "admin_socket"),
        ("DELETE", "/v1/refreshes/approval", b"", [false, false, true], "admin_socket"),
        ("DELETE", of_message, b"", [false, true, true], "register_socket"),
        ("GET", "/v1/pending", b"", [true; 3], ""),
        ("GET", "/v1/health", b"", [true; 3], ""),
    ];
    for (index, allowed) in [
        ApiPermissions { sign: true, ..none },
        ApiPermissions { register: true, ..none },
        ApiPermissions { administer: true, ..none },
    ]
    .into_iter()
    .enumerate()
    {
        let served = Served::allowing(Fake::default(), allowed);
        served.fake.registered.lock().unwrap().insert(b"message".to_vec());
        let mut refused = 0;
        for (method, path, body, may, missing) in operations {
            let answer = served.ask(method, path, body);
            assert_documented(method, path, &answer);
            if may[index] {
                assert!(answer.0 < 300, "{method} {path}: {}", answer.0);
                continue;
            }
            refused += 1;
            let reason = String::from_utf8(answer.2).unwrap();
            assert!(answer.0 == 403 && reason.contains(missing), "{method} {path}: {reason}");
        }
        assert_eq!(served.fake.refused.lock().unwrap().len(), refused);
    }
}
