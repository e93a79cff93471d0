//! A key-value store that a group of servers replicates. Each server runs
//!
//!     replicated-store serve FILE.toml
//!
//! with the configuration of a `sunder quorum node`. A client needs the group's public key, and
//! the sockets of some servers in a directory, named by the servers' identities:
//!
//!     replicated-store put|get|swap public.pem SOCKETS KEY [VALUE | OLD NEW]
//!
//! It verifies each answer, and finds the current servers by the headers that the group has signed.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::{env, error, fs, io};

use keys::trusted::TrustedFolder;
use keys::{IdentityPublicKey, RsaPublicKey};
use random::RandomGenerator;
use serde::{Deserialize, Serialize};
use service::metrics::PrometheusMetric;
use service::status::{ServiceStatus, StatusSocket, name_of};
use sunder_quorum::MalformedEncoding;
use sunder_quorum::api::{ApiSocket, QuorumApiClient};
use sunder_quorum::group::{GroupHeader, verify_chain};
use sunder_quorum::node::{self, ConfiguredSocket, QuorumNodeConfig, QuorumNodeStatus};
use sunder_quorum::replication::{ReplicatedService, ServiceRequest, StateMachine};
use sunder_quorum::server::GroupStart;

type Error = Box<dyn error::Error + Send + Sync>;

/// The name in all answers. Another service under the same key has another name.
const NAME: &str = "replicated-store";

/// The most bytes of all keys and values, each counted with 8 more: within the limit of a state.
const MAX_BYTES: usize = 8 << 20;

/// The state machine. A command is an operation, a key and values, each ended by a zero byte.
#[derive(Default)]
struct KeyValueStore {
    values: BTreeMap<Vec<u8>, Vec<u8>>,
    bytes: usize,
}

impl KeyValueStore {
    fn put(&mut self, key: &[u8], value: &[u8]) -> Vec<u8> {
        let before = self.values.get(key).map_or(0, |old| key.len() + old.len() + 8);
        let bytes = self.bytes - before + key.len() + value.len() + 8;
        if bytes > MAX_BYTES {
            return b"error: the store is full".to_vec();
        }
        self.bytes = bytes;
        self.values.insert(key.to_vec(), value.to_vec());
        b"ok".to_vec()
    }
}

impl StateMachine for KeyValueStore {
    fn apply(&mut self, command: &[u8]) -> Vec<u8> {
        let fields: Vec<&[u8]> = command.split(|byte| *byte == 0).collect();
        match fields[..] {
            [b"get", key] => match self.values.get(key) {
                Some(value) => [b"value ", &value[..]].concat(),
                None => b"none".to_vec(),
            },
            [b"put", key, value] => self.put(key, value),
            // Writes the new value only if the key has the old one.
            [b"swap", key, old, new] => match self.values.get(key) {
                Some(value) if value == old => self.put(key, new),
                _ => b"no: the key has another value".to_vec(),
            },
            // Anyone can send anything to a faulty server.
            _ => b"error: not a command".to_vec(),
        }
    }

    fn snapshot(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.bytes);
        for field in self.values.iter().flat_map(|(key, value)| [key, value]) {
            bytes.extend(u32::try_from(field.len()).unwrap_or(u32::MAX).to_be_bytes());
            bytes.extend(field);
        }
        bytes
    }

    fn restore(&mut self, mut snapshot: &[u8]) -> Result<(), MalformedEncoding> {
        let mut field = || -> Option<Vec<u8>> {
            let (len, rest) = snapshot.split_first_chunk::<4>()?;
            let (field, rest) = rest.split_at_checked(u32::from_be_bytes(*len) as usize)?;
            snapshot = rest;
            Some(field.to_vec())
        };
        let mut values = BTreeMap::new();
        while let Some(key) = field() {
            values.insert(key, field().ok_or(MalformedEncoding("a key without a value"))?);
        }
        if !snapshot.is_empty() {
            return Err(MalformedEncoding("not a list of fields"));
        }
        self.bytes = values.iter().map(|(key, value)| key.len() + value.len() + 8).sum();
        self.values = values;
        Ok(())
    }
}

/// The status of a server, which `sunder status` shows as one of a `sunder quorum node`, with its
/// problems and metrics.
#[derive(Serialize, Deserialize)]
#[serde(transparent)]
struct StoreStatus(QuorumNodeStatus);

impl ServiceStatus for StoreStatus {
    const METRICS: &'static [PrometheusMetric<Self>] = &[];

    fn name(&self) -> &str {
        &self.0.name
    }

    fn set_name(&mut self, name: String) {
        self.0.name = name;
    }

    fn uptime_s(&self) -> f64 {
        self.0.uptime_s
    }
}

/// Runs one server.
async fn serve(path: &Path) -> Result<(), Error> {
    let text = fs::read_to_string(path)?;
    let config = QuorumNodeConfig::from_toml(&text);
    let mut config = config.map_err(|problems| problems.first().in_one_line(&text))?;
    config.config_dir = path.parent().unwrap_or(Path::new("")).to_owned();
    let mut opened = node::open(&config).await?;
    opened.settings.service = Some(ReplicatedService::new(NAME, KeyValueStore::default())?);
    let mut node = node::start(&config, opened)?;
    let (api, mut sockets) = (Arc::new(node.handle()), Vec::new());
    for ConfiguredSocket { path, access, allowed, .. } in config.sockets() {
        let (path, connections) = (config.config_dir.join(path), config.max_connections);
        sockets.push(ApiSocket::open(&path, access, allowed, connections, Arc::clone(&api))?);
    }
    let (source, name) = (node.handle(), name_of(path));
    let check =
        |directory: &Path| TrustedFolder::new(directory).map(drop).map_err(io::Error::other);
    let _status =
        StatusSocket::open("quorum", check, move || StoreStatus(source.status(name.clone())));
    Ok(node.failed().await?)
}

/// A client, which knows the group's public key.
struct StoreClient {
    public: RsaPublicKey,
    sockets: PathBuf,
}

impl StoreClient {
    fn server(&self, identity: &IdentityPublicKey) -> QuorumApiClient {
        QuorumApiClient::new(&self.sockets.join(identity.to_string()))
    }

    /// The last header that the group has signed, of all that servers with a socket know. A server
    /// that lies can withhold headers, but not make any.
    async fn newest_header(&self) -> Result<GroupHeader, Error> {
        let mut newest: Option<GroupHeader> = None;
        for entry in fs::read_dir(&self.sockets)? {
            let server = QuorumApiClient::new(&entry?.path());
            let Ok(bytes) = server.headers().await else { continue };
            let Ok(chain) = GroupStart::parse_chain(&bytes) else { continue };
            let headers: Vec<_> =
                chain.iter().map(|it| (it.header.to_bytes(), &it.signature[..])).collect();
            let headers = headers.iter().map(|(header, signature)| (&header[..], *signature));
            match verify_chain(headers, |header, by| self.public.verify(header, by)) {
                Ok(last) if newest.as_ref().is_none_or(|it| it.epoch < last.epoch) => {
                    newest = Some(last);
                }
                Ok(_) => {}
                Err(why) => eprintln!("a server sends wrong headers: {why}"),
            }
        }
        newest.ok_or_else(|| "no server answers with headers that the group has signed".into())
    }

    /// The group's answer to a command. Asks the servers of the newest group, one after another,
    /// until an answer is verified.
    async fn command(&self, command: &[u8]) -> Result<String, Error> {
        let header = self.newest_header().await?;
        let request = ServiceRequest::new(NAME, command, &mut RandomGenerator::seeded()?)?;
        for member in header.group.members() {
            let server = self.server(&member.identity);
            let answer = server.command(request.as_bytes().to_vec().into()).await;
            let why: Error = match answer {
                Ok(answer) => match request.verify(&self.public, &answer) {
                    Ok(answer) => return Ok(String::from_utf8_lossy(&answer.answer).into_owned()),
                    Err(why) => why.into(),
                },
                Err(why) => why.into(),
            };
            eprintln!("server {}: {why}", member.identity);
            // A second swap would fail if the first one was applied without an answer.
            if command.starts_with(b"swap\0") && !is_unconnected(&*why) {
                return Err("it is not known whether the value was swapped: get the key".into());
            }
        }
        Err("no server of the group gives a right answer".into())
    }
}

fn is_unconnected(why: &(dyn error::Error + 'static)) -> bool {
    matches!(why.downcast_ref(), Some(sunder_quorum::api::QuorumApiError::Unconnected { .. }))
}

/// Runs the program with these arguments. Returns what it prints.
///
/// # Errors
/// If the arguments are wrong, the server fails, or no answer is right.
pub(crate) fn run(arguments: &[&str]) -> Result<String, Error> {
    let runtime = tokio::runtime::Runtime::new()?;
    match *arguments {
        ["serve", config] => runtime.block_on(serve(Path::new(config))).map(|()| String::new()),
        [operation @ ("put" | "get" | "swap"), public, sockets, ref fields @ ..] => {
            let public = RsaPublicKey::read(Path::new(public))?;
            let client = StoreClient { public, sockets: sockets.into() };
            let command = [&[operation], fields].concat().join("\0");
            runtime.block_on(client.command(command.as_bytes()))
        }
        _ => Err(io::Error::other("usage: see the head of this program").into()),
    }
}

fn main() -> ExitCode {
    let arguments: Vec<String> = env::args().skip(1).collect();
    match run(&arguments.iter().map(String::as_str).collect::<Vec<_>>()) {
        Ok(printed) => {
            println!("{printed}");
            ExitCode::SUCCESS
        }
        Err(why) => {
            eprintln!("replicated-store: {why}");
            ExitCode::FAILURE
        }
    }
}
