//! Servers on the hosts of a network, each with a directory of its own.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use keys::AnyPublicKey;
use lab::{EmulatedNetwork, sandbox};
use quorum::api::{ApiEncoding, QuorumApiClient};
use quorum::node::QuorumNodeStatus;
use quorum::store::audit;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;
use tokio::runtime::{Builder, Runtime};

use crate::emulation::{Process, until};
use crate::links::{self, address};
use crate::signers::{REGISTERED, RULE, Signers, encoding_of};

/// The number of servers. The first four have the key.
pub(crate) const SERVERS: usize = 8;

/// The key of a group, as `sunder quorum init --key` names it.
const USUAL_KEY: &str = "rsa-2048";
pub(crate) const POLYNOMIAL_KEY: &str = "rsa-2048-polynomial";
pub(crate) const ED25519_KEY: &str = "ed25519";

/// The kind of key of clusters that do not name another one.
pub(crate) fn usual_key() -> String {
    env::var("SUNDER_QUORUM_KEY").unwrap_or_else(|_| USUAL_KEY.into())
}

/// The groups.
pub(crate) const FIRST: [usize; 4] = [1, 2, 3, 4];
pub(crate) const SECOND: [usize; 4] = [5, 6, 7, 8];

/// The port on which servers listen.
pub(crate) const PORT: u16 = 6530;

/// What no log has if all servers are correct.
const ACCUSATIONS: [&str; 6] =
    ["examine it", "signs wrongly", "it is faulty", "panicked", "damaged", "has failed"];

/// What a server says that has no room on its disk.
pub(crate) const NO_ROOM: &str = "make room";

/// Servers with users who have messages signed.
pub(crate) struct Cluster {
    // First, because they must be killed before their hosts vanish.
    processes: BTreeMap<usize, Process>,
    pub(crate) signers: Signers,
    pub(crate) network: EmulatedNetwork,
    pub(crate) runtime: Runtime,
    place: TempDir,
    /// The group's public key.
    public: Option<AnyPublicKey>,
    /// How often each server was started.
    starts: BTreeMap<usize, usize>,
    /// The servers that are stopped.
    paused: BTreeSet<usize>,
    /// What is added to the environment of a server.
    pub(crate) environment: BTreeMap<usize, Vec<(String, PathBuf)>>,
    /// The group that has the key, and its epoch.
    pub(crate) group: Vec<usize>,
    pub(crate) epoch: u64,
}

impl Cluster {
    /// Starts all servers. Links have this delay.
    pub(crate) fn start(delay_ms: u32) -> Self {
        Self::prepared(delay_ms, |_| {})
    }

    /// The same, with a key of this kind.
    pub(crate) fn with_key(delay_ms: u32, key: &str) -> Self {
        Self::prepared_with_key(delay_ms, key, |_| {})
    }

    /// The same, with these additional settings of all servers.
    pub(crate) fn with_settings(delay_ms: u32, settings: &str) -> Self {
        Self::prepared(delay_ms, |cluster| {
            (1..=SERVERS).for_each(|server| cluster.add_settings(server, settings));
        })
    }

    /// Adds settings to a server's configuration.
    pub(crate) fn add_settings(&self, server: usize, settings: &str) {
        let path = self.directory(server).join("node.toml");
        let config = fs::read_to_string(&path).unwrap();
        fs::write(path, format!("{settings}{config}")).unwrap();
    }

    /// The same, after `prepare` has changed something. `SUNDER_QUORUM_KEY` is the kind of the key.
    pub(crate) fn prepared(delay_ms: u32, prepare: impl FnOnce(&mut Self)) -> Self {
        Self::prepared_with_key(delay_ms, &usual_key(), prepare)
    }

    /// The same, with a key of this kind.
    pub(crate) fn prepared_with_key(
        delay_ms: u32,
        key: &str,
        prepare: impl FnOnce(&mut Self),
    ) -> Self {
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        let ceremony = ceremony(key);
        let ceremony = ceremony.as_path();
        let sockets: Vec<PathBuf> =
            (1..=SERVERS).map(|server| place.path().join(format!("s{server}/api"))).collect();
        for server in 1..=SERVERS {
            set_up(ceremony, &place.path().join(format!("s{server}")), server);
        }
        let mut cluster = Self {
            processes: BTreeMap::new(),
            signers: Signers::new(SERVERS),
            network: links::network(SERVERS, delay_ms),
            runtime: Builder::new_current_thread().enable_all().build().unwrap(),
            place,
            public: None,
            starts: BTreeMap::new(),
            paused: BTreeSet::new(),
            environment: BTreeMap::new(),
            group: FIRST.into(),
            epoch: 1,
        };
        prepare(&mut cluster);
        for server in FIRST {
            cluster.start_server(server);
        }
        if key == ED25519_KEY {
            cluster.take_generated_key();
        }
        let pem = fs::read_to_string(cluster.directory(1).join("public.pem")).unwrap();
        let public = AnyPublicKey::from_pem(&pem).unwrap();
        cluster.signers.start(public.clone(), sockets);
        cluster.public = Some(public);
        for server in SECOND {
            cluster.start_server(server);
        }
        for server in 1..=SERVERS {
            until(&format!("server {server} answers"), || cluster.status(server).is_some());
            let registered = cluster.register(server);
            assert!(registered, "server {server} has the message already");
        }
        cluster.settle();
        cluster
    }

    /// Waits until the first group has generated its key, and gives all servers its public key, and
    /// the others a bundle with it.
    fn take_generated_key(&self) {
        self.until("the key is generated", || {
            FIRST.iter().all(|server| self.status(*server).is_some_and(|it| it.health.ok))
        });
        let client = self.client(1);
        let pem = self.runtime.block_on(client.public_key()).unwrap();
        let bundle = self.runtime.block_on(client.bundle()).unwrap();
        for server in 1..=SERVERS {
            fs::write(self.directory(server).join("public.pem"), &pem).unwrap();
        }
        for server in SECOND {
            fs::write(self.directory(server).join("group.bundle"), &bundle).unwrap();
        }
    }

    /// The usual encoding of the group's signatures.
    pub(crate) fn encoding(&self) -> ApiEncoding {
        encoding_of(self.public.as_ref().expect("the key is known"))
    }

    /// A server's directory.
    pub(crate) fn directory(&self, server: usize) -> PathBuf {
        self.place.path().join(format!("s{server}"))
    }

    /// Starts a server.
    pub(crate) fn start_server(&mut self, server: usize) {
        let starts = self.starts.entry(server).or_default();
        *starts += 1;
        let log = self.place.path().join(format!("s{server}/log.{starts}"));
        let directory = self.directory(server);
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command
            .args(["quorum", "node", "--config", "node.toml"])
            .current_dir(&directory)
            .env("RUNTIME_DIRECTORY", &directory)
            .envs(self.environment.get(&server).into_iter().flatten().cloned());
        let host = self.network.host(&format!("s{server}")).unwrap();
        self.processes.insert(server, Process::start(host, &mut command, &log));
    }

    /// The process of a server.
    pub(crate) fn id(&self, server: usize) -> u32 {
        self.processes[&server].0.id()
    }

    /// Kills a server. It may fail until [`Self::settle`].
    pub(crate) fn kill(&mut self, server: usize) {
        self.signers.begin_fault(server);
        drop(self.processes.remove(&server).expect("it runs"));
    }

    /// Whether a server has ended by itself. It is forgotten then.
    pub(crate) fn has_ended(&mut self, server: usize) -> bool {
        let process = self.processes.get_mut(&server);
        let has_ended = process.is_none_or(|it| it.0.try_wait().unwrap().is_some());
        if has_ended {
            self.processes.remove(&server);
        }
        has_ended
    }

    /// Stops a server, which may fail until [`Self::settle`].
    pub(crate) fn pause(&mut self, server: usize) {
        self.signers.begin_fault(server);
        self.paused.insert(server);
        self.signal(server, Signal::STOP);
    }

    /// Lets it go on.
    pub(crate) fn resume(&mut self, server: usize) {
        self.signal(server, Signal::CONT);
        self.paused.remove(&server);
    }

    /// Sends a signal to a server.
    pub(crate) fn signal(&self, server: usize, signal: Signal) {
        let pid = Pid::from_child(&self.processes[&server].0);
        kill_process(pid, signal).unwrap();
    }

    /// Cuts servers off from others, which may fail until [`Self::settle`].
    pub(crate) fn begin_faults(&self, servers: &[usize]) {
        for &server in servers {
            self.signers.begin_fault(server);
        }
    }

    /// The API of a server.
    pub(crate) fn client(&self, server: usize) -> QuorumApiClient {
        QuorumApiClient::new(&self.directory(server).join("api"))
    }

    /// What a server tells of itself.
    pub(crate) fn status(&self, server: usize) -> Option<QuorumNodeStatus> {
        if self.paused.contains(&server) {
            return None;
        }
        let mut stream =
            UnixStream::connect(self.directory(server).join("quorum-node.sock")).ok()?;
        // A server of a busy machine may be late.
        stream.set_read_timeout(Some(Duration::from_secs(10))).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        serde_json::from_str(&text).ok()
    }

    /// What a server has logged.
    pub(crate) fn log(&self, server: usize) -> String {
        let starts = 1..=self.starts.get(&server).copied().unwrap_or(0);
        let logs = starts.map(|start| self.directory(server).join(format!("log.{start}")));
        logs.map(|log| fs::read_to_string(log).unwrap()).collect()
    }

    /// Registers the message at a server. Returns whether it was not registered.
    pub(crate) fn register(&self, server: usize) -> bool {
        let client = self.client(server);
        let registering = client.register(REGISTERED.as_bytes().into());
        self.runtime.block_on(registering).unwrap().new
    }

    /// Waits until all servers run as in an epoch without faults, and checks that nothing is lost.
    pub(crate) fn settle(&self) {
        for server in 1..=SERVERS {
            let what = || format!("server {server} in epoch {}", self.epoch);
            self.until(&what(), || self.is_settled(server));
        }
        self.signers.end_faults();
        for server in 1..=SERVERS {
            assert!(!self.register(server), "server {server} has lost a registered message");
            self.check_files(server);
        }
        self.check_epochs();
        for &server in &self.group {
            let client = self.client(server);
            let signing = client.sign(REGISTERED.as_bytes().into(), self.encoding());
            let signature = self.runtime.block_on(signing);
            let signature = signature.unwrap_or_else(|error| panic!("{error}{}", self.logs()));
            assert!(self.openssl_accepts(REGISTERED.as_bytes(), &signature));
            let pem = self.runtime.block_on(client.public_key()).unwrap();
            assert_eq!(pem, fs::read(self.directory(server).join("public.pem")).unwrap());
        }
        for (message, signature) in self.signers.samples() {
            assert!(self.openssl_accepts(&message, &signature));
        }
        let mistakes = self.signers.mistakes();
        assert!(mistakes.is_empty(), "{mistakes:#?}{}", self.logs());
    }

    /// Waits until something holds; if not, shows all logs.
    pub(crate) fn until(&self, what: &str, mut holds: impl FnMut() -> bool) {
        let deadline = Instant::now() + Duration::from_secs(90);
        while !holds() {
            assert!(Instant::now() < deadline, "not within 90 s: {what}{}", self.logs());
            thread::sleep(Duration::from_millis(10));
        }
    }

    /// Whether a server is where it should be in this epoch, with no keys of others.
    pub(crate) fn is_settled(&self, server: usize) -> bool {
        let Some(status) = self.status(server) else { return false };
        let is_member = self.group.contains(&server);
        let has_shares = status.health.epoch == Some(self.epoch) && status.health.ok;
        let has_vote = status.index.is_some_and(|own| !status.without_vote.contains(&own));
        let is_through = !is_member || status.header_signed && has_shares && has_vote;
        // A server that was never in a group waits to be invited.
        let is_out = is_member || !status.has_shares && status.index.is_none();
        let wanted: Vec<String> =
            if is_member { vec![format!("epoch-{}.key", self.epoch)] } else { Vec::new() };
        is_through && is_out && self.keys(server) == wanted
    }

    /// The names of the keys in a server's store.
    pub(crate) fn keys(&self, server: usize) -> Vec<String> {
        let files = fs::read_dir(self.directory(server).join("store")).into_iter().flatten();
        let names = files.map(|file| file.unwrap().file_name().into_string().unwrap());
        let is_key = |name: &String| name.starts_with("epoch-") || name.starts_with("run-");
        names.filter(is_key).collect()
    }

    fn check_files(&self, server: usize) {
        let store = self.directory(server).join("store");
        let path = store.join("audit.log");
        let verified = audit::verify(File::open(&path).unwrap(), &path);
        assert!(verified.is_ok(), "server {server}: {verified:?}");
        let evidence = fs::read_dir(&store).unwrap().map(|file| file.unwrap().file_name());
        let evidence: Vec<_> =
            evidence.filter(|name| name.to_string_lossy().starts_with("evidence")).collect();
        assert!(evidence.is_empty(), "server {server}: {evidence:?}{}", self.logs());
        let log = self.log(server);
        let mut lines = log.lines().filter(|line| !line.contains(NO_ROOM));
        let accused = lines.find(|line| ACCUSATIONS.iter().any(|it| line.contains(it)));
        assert!(accused.is_none(), "server {server}: {accused:?}{}", self.logs());
    }

    /// The chain of epochs, as anyone can verify it.
    fn check_epochs(&self) {
        let server = self.group[0];
        let headers = self.runtime.block_on(self.client(server).headers()).unwrap();
        let path = self.place.path().join("headers");
        fs::write(&path, headers).unwrap();
        let output = self.run(&["verify-epochs", "--pubkey", "s1/public.pem", "headers"]);
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{output:?}");
        let last = stdout.lines().rfind(|line| line.starts_with("epoch "));
        let last = last.and_then(|line| line["epoch ".len()..].split([' ', ':', ',']).next());
        assert_eq!(last, Some(&self.epoch.to_string()[..]), "{stdout}");
    }

    /// Runs `sunder quorum` in the directory of all servers.
    pub(crate) fn run(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.arg("quorum").args(arguments).current_dir(self.place.path()).output().unwrap()
    }

    fn openssl_accepts(&self, message: &[u8], signature: &[u8]) -> bool {
        fs::write(self.place.path().join("message"), message).unwrap();
        fs::write(self.place.path().join("signature"), signature).unwrap();
        let mut openssl = Command::new("openssl");
        match self.public {
            Some(AnyPublicKey::Ed25519(_)) => openssl
                .args(["pkeyutl", "-verify", "-pubin", "-inkey", "s1/public.pem", "-rawin"])
                .args(["-in", "message", "-sigfile", "signature"]),
            _ => openssl
                .args(["dgst", "-sha256", "-verify", "s1/public.pem", "-signature", "signature"])
                .arg("message"),
        };
        openssl.current_dir(self.place.path()).output().unwrap().status.success()
    }

    /// The logs of all servers, and what they tell of themselves.
    pub(crate) fn logs(&self) -> String {
        let logs = (1..=SERVERS).map(|server| {
            let status = self.status(server).map(|it| format!("{it:?}"));
            format!(
                "\n{server}: {}\nkeys {:?}\n{}",
                status.unwrap_or_default(),
                self.keys(server),
                self.log(server)
            )
        });
        logs.collect()
    }
}

/// The keys and shares of all clusters with a kind of key: the ceremony takes some seconds.
fn ceremony(key: &str) -> PathBuf {
    static PLACES: Mutex<BTreeMap<String, TempDir>> = Mutex::new(BTreeMap::new());
    let mut places = PLACES.lock().unwrap_or_else(PoisonError::into_inner);
    let place = places.entry(key.into()).or_insert_with(|| {
        let place = tempfile::tempdir_in(sandbox::SCRATCH).unwrap();
        let run = |arguments: &[&str]| {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
            let output = command.arg("quorum").args(arguments).current_dir(&place).output();
            let output = output.unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
            String::from_utf8(output.stdout).unwrap()
        };
        for server in 1..=SERVERS {
            let name = format!("{server}.key");
            write_secret(&place.path().join(&name), &format!("{server:02x}").repeat(32));
            let identity = run(&["identity", &name]);
            let server = format!(
                "[[server]]\nidentity = \"{}\"\naddress = \"{}:{PORT}\"\n",
                identity.trim(),
                address(server)
            );
            fs::write(place.path().join(name.replace("key", "server")), server).unwrap();
        }
        fs::write(place.path().join("nodes.toml"), nodes(place.path(), &FIRST)).unwrap();
        if key == ED25519_KEY {
            run(&["init", "--nodes", "nodes.toml", "--bundle", "founding.bundle", "--key", key]);
        } else {
            run(&["init", "--nodes", "nodes.toml", "--out", "made", "--key", key]);
        }
        place
    });
    place.path().to_owned()
}

/// The list of these servers.
fn nodes(ceremony: &Path, servers: &[usize]) -> String {
    let read = |server| fs::read_to_string(ceremony.join(format!("{server}.server"))).unwrap();
    servers.iter().map(read).collect()
}

/// The list of these servers, as in a `NODES.toml`. It does not depend on the kind of the key.
pub(crate) fn list_of(servers: &[usize]) -> String {
    nodes(&ceremony(USUAL_KEY), servers)
}

fn write_secret(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

/// The files of a server.
fn set_up(ceremony: &Path, directory: &Path, server: usize) {
    fs::create_dir(directory).unwrap();
    let copy = |from: String, to: &str| fs::copy(ceremony.join(from), directory.join(to)).unwrap();
    copy(format!("{server}.key"), "identity.key");
    write_secret(&directory.join("master.key"), &"0f".repeat(32));
    let from_ceremony = match (FIRST.contains(&server), ceremony.join("founding.bundle").exists()) {
        (true, true) => {
            copy("founding.bundle".into(), "group.bundle");
            "bundle = \"group.bundle\"\n"
        }
        // It is there when the key is generated.
        (false, true) => "bundle = \"group.bundle\"\n",
        (is_first, false) => {
            copy("made/public.pem".into(), "public.pem");
            if is_first {
                copy(format!("made/server-{server}.share"), "share");
            }
            if is_first {
                "public_key = \"public.pem\"\nshare = \"share\"\n"
            } else {
                "public_key = \"public.pem\"\n"
            }
        }
    };
    let peers = nodes(ceremony, &FIRST).replace("[[server]]", "[[peer]]");
    let config = format!(
        "identity = \"identity.key\"\nmaster_key = \"master.key\"\n{from_ceremony}\
         store = \"store\"\nlisten = [\"{}:{PORT}\"]\nsocket = \"api\"\n\
         need_delay_s = 2\ngrace_delay_s = 5\n[[rule]]\nprefix = \"{RULE}\"\n{peers}",
        address(server)
    );
    fs::write(directory.join("node.toml"), config).unwrap();
}
