use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use keys::AnyPublicKey;
use serde_json::Value;
use tempfile::TempDir;
use tokio::runtime::Runtime;

use super::*;
use crate::policy::MessageDigest;
use crate::protocol::group::GroupKeyKind;
use crate::protocol::policy::check_message;

/// Answers from memory.
#[derive(Default)]
struct Fake {
    registered: Mutex<BTreeSet<Vec<u8>>>,
    refused: Mutex<Vec<(&'static str, String)>>,
    is_ill: bool,
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

/// All connections that are served at a time are kept open, without a request or after one.
#[test]
fn idle_connections_do_not_block_new_ones() {
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
    let begun = std::time::Instant::now();
    for _ in 0..4 {
        assert_eq!(served.ask("GET", "/v1/health", b"").0, 200);
    }
    // Without it, they wait for the time limit of a request's header, which is 10 s.
    assert!(begun.elapsed().as_secs() < 8, "{:?}", begun.elapsed());
    let is_open = |stream: &mut UnixStream| {
        stream.set_nonblocking(true).unwrap();
        stream.read(&mut [0; 1000]).is_err()
    };
    let open = kept.iter_mut().map(is_open).filter(|is_open| *is_open).count();
    assert!(open >= 32, "{open} of 64 are left open: no more are closed than places are needed");
}

fn document() -> Value {
    serde_json::from_str(OPENAPI).unwrap()
}

/// Checks a value against a schema: the part of JSON Schema that the document uses.
fn conforms(value: &Value, schema: &Value, document: &Value) -> bool {
    if let Some(name) = schema["$ref"].as_str() {
        return conforms(value, document.pointer(&name[1..]).unwrap(), document);
    }
    let is_type = |name: &str| match name {
        "object" => value.is_object(),
        "array" => value.is_array(),
        "string" => value.is_string(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_u64(),
        "null" => value.is_null(),
        other => panic!("type {other}"),
    };
    let types = match &schema["type"] {
        Value::Array(types) => types.clone(),
        single => vec![single.clone()],
    };
    let mut fits = types.iter().any(|name| is_type(name.as_str().unwrap()));
    if let Some(names) = schema["enum"].as_array() {
        fits &= names.contains(value);
    }
    if let (Some(minimum), Some(value)) = (schema["minimum"].as_u64(), value.as_u64()) {
        fits &= value >= minimum;
    }
    if schema["pattern"] == "^[0-9a-f]{64}$" {
        let text = value.as_str().unwrap();
        fits &= text.len() == 64 && text.chars().all(|c| c.is_ascii_hexdigit());
    }
    if let (Some(items), Some(values)) = (schema.get("items"), value.as_array()) {
        fits &= values.iter().all(|value| conforms(value, items, document));
    }
    if let (Some(properties), Some(values)) = (schema["properties"].as_object(), value.as_object())
    {
        let required = schema["required"].as_array().unwrap();
        fits &= required.iter().all(|name| values.contains_key(name.as_str().unwrap()));
        fits &= values.iter().all(|(name, value)| {
            properties.get(name).is_some_and(|schema| conforms(value, schema, document))
        });
    }
    fits
}

/// Asserts that the document describes an answer to its request.
fn assert_documented(method: &str, path: &str, answer: &(u16, String, Vec<u8>)) {
    let document = document();
    let (status, content_type, body) = answer;
    let path = path.split('?').next().unwrap();
    let is_message = path.starts_with("/v1/messages/");
    let path = if is_message { "/v1/messages/{digest}" } else { path };
    let operation = &document["paths"][path][method.to_lowercase()];
    let response = &operation["responses"][status.to_string()];
    let text = String::from_utf8_lossy(body);
    assert!(response.is_object(), "{method} {path}: {status} is not documented: {text}");
    if *status == 204 || response["content"].is_null() {
        assert!(body.is_empty() && response["content"].is_null(), "{method} {path}");
        return;
    }
    let content = &response["content"][content_type];
    assert!(content.is_object(), "{method} {path}: {status} {content_type} is not documented");
    if content_type == "application/json" {
        let body: Value = serde_json::from_slice(body).unwrap();
        assert!(conforms(&body, &content["schema"], &document), "{method} {path}: {body}");
    }
}

#[test]
fn document_and_server_have_the_same_operations() {
    let document = document();
    let documented = document["paths"].as_object().unwrap().iter().flat_map(|(path, methods)| {
        let methods = methods.as_object().unwrap().keys();
        methods.map(move |method| (path.clone(), method.to_uppercase()))
    });
    let served = route::ROUTES.iter();
    let served = served.map(|(path, method, _)| ((*path).to_owned(), method.to_string()));
    assert_eq!(documented.collect::<BTreeSet<_>>(), served.collect::<BTreeSet<_>>());
    let limit = document.pointer(
        "/paths/~1v1~1messages/post/requestBody/content/application~1octet-stream/schema/maxLength",
    );
    assert_eq!(limit.unwrap().as_u64().unwrap(), MAX_BODY_LEN as u64);
}

#[test]
fn answers_are_as_documented() {
    for is_ill in [false, true] {
        let served = Served::new(Fake { is_ill, ..Fake::default() });
        let header = &crate::protocol::group::HEADER_MAGIC[..];
        let of_message = &format!("/v1/messages/{}", MessageDigest::of(b"message"));
        let requests: &[(&str, &str, &[u8], u16)] = &[
            ("POST", "/v1/messages", b"message", 201),
            ("POST", "/v1/messages", b"message", 200),
            ("POST", "/v1/messages?a=b", b"message", 400),
            ("POST", "/v1/messages", header, 403),
            ("POST", "/v1/signatures", b"message", 200),
            ("POST", "/v1/signatures?encoding=pss", b"message", 200),
            ("POST", "/v1/signatures?encoding=raw", b"message", 400),
            ("POST", "/v1/signatures", b"another", 403),
            ("GET", of_message, b"", 200),
            ("GET", "/v1/messages/0a", b"", 400),
            ("GET", "/v1/pending", b"", 200),
            ("DELETE", of_message, b"", 204),
            ("DELETE", of_message, b"", 404),
            ("GET", of_message, b"", 404),
            ("DELETE", "/v1/refreshes/approval", b"", if is_ill { 409 } else { 202 }),
            ("GET", "/v1/bundle", b"", if is_ill { 503 } else { 200 }),
            ("POST", "/v1/commands", b"request", 200),
            ("POST", "/v1/refreshes", b"[[node]]", 202),
            ("POST", "/v1/refreshes", b"", 400),
            ("POST", "/v1/refreshes", b"\xff", 400),
            ("GET", "/v1/refreshes", b"", if is_ill { 404 } else { 200 }),
            ("GET", "/v1/refreshes", b"body", 400),
            ("DELETE", "/v1/refreshes", b"", if is_ill { 409 } else { 202 }),
            ("DELETE", "/v1/refreshes", b"body", 400),
            ("GET", "/v1/witnesses", b"", 200),
            ("GET", "/v1/public-key", b"", if is_ill { 503 } else { 200 }),
            ("GET", "/v1/headers", b"", 200),
            ("GET", "/v1/health", b"", if is_ill { 503 } else { 200 }),
            ("GET", "/v1/openapi.json", b"", 200),
        ];
        for (method, path, body, status) in requests {
            let answer = served.ask(method, path, body);
            assert_eq!(answer.0, *status, "{method} {path}");
            assert_documented(method, path, &answer);
        }
    }
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
        let body: Value = serde_json::from_slice(&body).unwrap();
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
fn the_client_gets_what_the_server_says() {
    let served = Served::new(Fake::default());
    let client = served.client();
    served.runtime.block_on(async {
        let message = Bytes::from_static(b"message");
        let error = client.sign(message.clone(), ApiEncoding::Pss).await.unwrap_err();
        assert!(error.is_forbidden() && error.to_string() == "not registered", "{error}");
        let registered = client.register(message.clone()).await.unwrap();
        assert_eq!(registered.digest, MessageDigest::of(&message).to_string());
        assert!(registered.new && !client.register(message.clone()).await.unwrap().new);
        assert_eq!(client.sign(message, ApiEncoding::Pss).await.unwrap(), "pss message");
        assert_eq!(client.start_refresh("[[node]]".into()).await.unwrap().epoch, 2);
        assert_eq!(client.cancel_refresh().await.unwrap(), state(RefreshStep::Cancelled));
        assert_eq!(client.refresh().await.unwrap(), state(RefreshStep::Done));
        assert_eq!(client.witnesses().await.unwrap().witnesses.len(), 4);
        assert!(client.public_key().await.unwrap().starts_with(b"-----BEGIN"));
        assert_eq!(client.headers().await.unwrap()[..], [0, 255]);
        assert_eq!(client.health().await.unwrap().height, 7);
    });
}

#[test]
fn servers_of_a_group_are_asked_in_turn() {
    let (empty, full) = (Served::new(Fake::default()), Served::new(Fake::default()));
    full.fake.registered.lock().unwrap().insert(b"message".to_vec());
    // It accepts connections, as a server that is stopped (SIGSTOP) does, and never answers.
    let hanging = empty.path().with_extension("hanging");
    let _listener = std::os::unix::net::UnixListener::bind(&hanging).unwrap();
    let missing = empty.path().with_extension("missing");
    let sign = |sockets: &[&PathBuf]| {
        let sockets: Vec<PathBuf> = sockets.iter().copied().cloned().collect();
        let client = GroupApiClient::new(&sockets);
        let message = Bytes::from_static(b"message");
        full.runtime.block_on(client.sign(&message, ApiEncoding::Pkcs1Sha512, None))
    };
    let (empty, full) = (empty.path(), full.path());
    let signed = sign(&[&missing, &hanging, &empty, &full]).unwrap();
    assert_eq!(signed, "pkcs1-sha512 message");
    // Each error names its socket, and what all say is said once.
    let refused = sign(&[&missing, &empty, &empty]).unwrap_err();
    let text = refused.to_string();
    assert!(refused.is_forbidden() && text.lines().count() == 1, "{text}");
    assert!(text.contains("is `sunder quorum node` running"), "{text}");
    assert!(text.ends_with("; not registered") && text.matches("not registered").count() == 1);
    let late = sign(&[&hanging]).unwrap_err();
    assert!(!late.is_forbidden() && late.to_string().contains("no answer from"), "{late}");
}

/// A signature is verified before the next server is given up: one that lies denies nothing.
#[test]
fn a_server_that_signs_falsely_is_passed_over() {
    let message = Bytes::from_static(b"message");
    let (place, runtime) = (TempDir::new().unwrap(), Runtime::new().unwrap());
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(place.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    std::fs::write(place.path().join("message"), &message).unwrap();
    openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key");
    let pem = String::from_utf8(openssl("pkey -in key -pubout")).unwrap();
    let key = AnyPublicKey::from_pem(&pem).unwrap();
    let pkcs1 = openssl("dgst -sha256 -sign key message");
    let pss = "rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32";
    let pss = openssl(&format!("dgst -sha256 -sigopt {pss} -sign key message"));
    let sha512 = openssl("dgst -sha512 -sign key message");

    let answers = [pkcs1, pss, sha512];
    let encodings = [ApiEncoding::Pkcs1, ApiEncoding::Pss, ApiEncoding::Pkcs1Sha512];
    let servers: Vec<Served> = answers
        .iter()
        .map(|answer| Served::new(Fake { signature: answer.clone(), ..Fake::default() }))
        .collect();
    for (right, encoding) in encodings.into_iter().enumerate() {
        for (index, answer) in answers.iter().enumerate() {
            assert_eq!(encoding.verify(&key, &message, answer), index == right, "{encoding:?}");
            assert!(!encoding.verify(&key, b"another", answer));
        }
        let sign = |order: &[usize]| {
            let sockets: Vec<PathBuf> = order.iter().map(|index| servers[*index].path()).collect();
            let client = GroupApiClient::new(&sockets);
            runtime.block_on(client.sign(&message, encoding, Some(&key)))
        };
        let [first, second] = [(right + 1) % 3, (right + 2) % 3];
        assert_eq!(sign(&[first, second, right]).unwrap(), answers[right]);
        let wrong = sign(&[first, second]).unwrap_err();
        let text = wrong.to_string();
        assert!(!wrong.is_forbidden() && text.matches("by the group's key").count() == 2, "{text}");
    }
}

#[test]
fn without_a_server_the_client_says_so() {
    let place = TempDir::new().unwrap();
    let client = QuorumApiClient::new(&place.path().join("socket"));
    let error = Runtime::new().unwrap().block_on(client.health()).unwrap_err().to_string();
    assert!(error.contains("is `sunder quorum node` running"), "{error}");
    assert_eq!(error.lines().count(), 1);
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
