//! Tests a server's configuration on this host.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use console::CommandFailure;
use keys::file::exposure;
use keys::trusted::{TrustError, TrustedFolder};
use keys::{AnyPublicKey, IdentityPublicKey, IdentitySecretKey};
use quorum::QuorumBundle;
use quorum::api::{QuorumApiClient, QuorumApiError, RefreshStatus};
use quorum::ceremony_files::{read_bundle, read_share_file};
use quorum::group::{GroupKeyKind, QuorumGroup};
use quorum::links::{LinkProbeResult, QuorumPeer, probe_all};
use quorum::node::{ConfiguredSocket, MasterKeySource, QuorumNodeConfig};
use quorum::store::{BUNDLE_FILE, MasterKey, QuorumStoreError, QuorumStoreSummary};
use rustix::fs::statvfs;
use service::memory;

use super::page;
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::listeners::OwnListeners;
use crate::checks::{host, listeners};

/// The free space that a refresh of the largest group may need, in bytes.
const REFRESH_FREE_SPACE: u64 = 1 << 30;

/// The free space without which a server soon fails, in bytes.
const CRITICAL_FREE_SPACE: u64 = 64 << 20;

/// How far the clock may be behind the last line of the audit log.
const CLOCK_TOLERANCE: Duration = Duration::from_secs(60);

/// The longest path of a Unix socket, in bytes.
const MAX_SOCKET_PATH: usize = 107;

/// The findings. The servers that it asks may log a refused connection.
pub(super) fn findings(
    config: &QuorumNodeConfig,
    own: &OwnListeners,
) -> Result<Vec<CheckFinding>, CommandFailure> {
    let mut findings = Vec::new();
    let identity = identity(&config.config_dir.join(&config.identity), &mut findings);
    let identity = identity.map(Arc::new);
    let bundle = bundle(config, identity.as_deref(), &mut findings);
    let public = public_key(config, bundle.as_ref(), &mut findings);
    findings.extend(engine(config, bundle.as_ref(), public.as_ref()));
    let directory = config.config_dir.join(&config.store);
    let master = master_key(config, &mut findings);
    let examined = master.and_then(|master| store(&directory, &master, &mut findings));
    let is_known = examined.is_some();
    let store = examined.flatten();
    let start = store.as_ref().and_then(|store| store.start.as_ref());
    // The founding header is not signed.
    if let (Some(start), Some(public)) = (start, &public)
        && let Some(first) = start.chain.iter().find(|it| !it.signature.is_empty())
        && !public.verify(&first.header.to_bytes(), &first.signature)
    {
        let what = "the store belongs to a group with another key";
        findings.push(error("public_key", what, "name the public key of the store's group"));
    }
    let kind = start.map(|start| start.header().key);
    findings.extend(experimental(kind.or(bundle.as_ref().map(|it| it.header().key))));
    findings.extend(space(&directory));
    findings.push(clock(store.as_ref(), SystemTime::now()));
    if is_known {
        share(config, start.is_some(), identity.as_deref(), public.as_ref(), &mut findings);
    }
    for ConfiguredSocket { key, path, .. } in config.sockets() {
        findings.extend(socket(key, &config.config_dir.join(path)));
    }
    let mut names: HashMap<[u8; 32], IdentityPublicKey> = HashMap::new();
    for peer in &config.peers {
        if names.insert(peer.key.to_bytes(), peer.key).is_some() {
            let what = format!("two peers have the identity {}", peer.key);
            findings.push(error("peer", what, "set each `identity` to that of its server"));
        }
    }
    findings.extend(config.listen.iter().map(|address| {
        listeners::tcp("listen", *address, || own.address_in_use("listen", *address, "quorum node"))
    }));
    if let Some(identity) = &identity {
        findings.extend(member(config, store.as_ref(), &identity.public()));
        let runtime = service::runtime()?;
        findings.extend(runtime.block_on(async {
            let has_never_run = is_known && store.is_none();
            let mut findings = running(config, has_never_run).await;
            findings.extend(peers(identity, all_peers(config, store.as_ref())).await);
            findings
        }));
    }
    findings.push(host::locked_memory(memory::lock_all_pages()));
    findings.push(host::random());
    Ok(findings)
}

fn error(subject: &str, what: impl Into<String>, fix: &str) -> CheckFinding {
    CheckFinding::new(FindingSeverity::Error, subject, what, fix)
}

fn untrusted(subject: &str, error: &TrustError) -> CheckFinding {
    CheckFinding::new(FindingSeverity::Error, subject, error.problem(), error.advice())
}

fn identity(path: &Path, findings: &mut Vec<CheckFinding>) -> Option<IdentitySecretKey> {
    let (finding, key) = match (IdentitySecretKey::read(path), exposure(path)) {
        (Err(failed), _) => {
            let fix = "name the file of the key whose public part is in the list of servers";
            (error("identity", failed.to_string(), fix), None)
        }
        (Ok(key), Some(exposed)) => (untrusted("identity", &exposed), Some(key)),
        (Ok(key), None) => {
            let what = format!("this server is {}", key.public());
            (CheckFinding::ok("identity", what), Some(key))
        }
    };
    findings.push(finding);
    key
}

/// The bundle of the configuration, or what the store has kept of it.
fn bundle(
    config: &QuorumNodeConfig,
    identity: Option<&IdentitySecretKey>,
    findings: &mut Vec<CheckFinding>,
) -> Option<QuorumBundle> {
    let path = config.config_dir.join(config.bundle.as_ref()?);
    let kept = config.config_dir.join(&config.store).join(BUNDLE_FILE);
    let (path, is_kept) = if path.exists() { (path, false) } else { (kept, true) };
    if is_kept && !path.exists() {
        let what = "it does not exist, and the store has none";
        let fix = "copy the group's bundle there, or name it with --bundle at the first start";
        findings.push(error("bundle", what, fix));
        return None;
    }
    let bundle = match read_bundle(&path) {
        Ok(bundle) => bundle,
        Err(failed) => {
            findings.push(error("bundle", failed.to_string(), "copy it again"));
            return None;
        }
    };
    let key = bundle.anchor().digest();
    let what = match bundle.public() {
        Some(_) => format!("its public key has the SHA-256 {key}"),
        None => format!("its servers generate a key, and their list has the SHA-256 {key}"),
    };
    let is_listed = |identity: &&IdentitySecretKey| {
        bundle.header().group.index_of(&identity.public()).is_some()
    };
    let with_shares = identity.filter(|_| bundle.has_shares());
    let share = with_shares.filter(is_listed);
    if with_shares.is_some() && share.is_none() {
        let what = "it has no shares for this server's identity";
        let fix = "if the group is to have this server, make the bundle again with the line that \
                   `sunder init quorum` has printed here";
        findings.push(CheckFinding::new(FindingSeverity::Warning, "bundle", what, fix));
    }
    findings.push(match share.map(|identity| bundle.share_of(identity)) {
        Some(Err(failed)) => error("bundle", failed.to_string(), "copy it again"),
        _ => CheckFinding::ok("bundle", what),
    });
    Some(bundle)
}

fn public_key(
    config: &QuorumNodeConfig,
    bundle: Option<&QuorumBundle>,
    findings: &mut Vec<CheckFinding>,
) -> Option<AnyPublicKey> {
    let bundled = bundle.and_then(QuorumBundle::public);
    let Some(path) = &config.public_key else { return bundled };
    match AnyPublicKey::read(&config.config_dir.join(path)) {
        Ok(key) if bundled.as_ref().is_some_and(|bundled| *bundled != key) => {
            let what = "it is not the key of the bundle";
            findings.push(error("public_key", what, "leave it out, or copy both again"));
            None
        }
        Ok(key) => {
            let what = match &key {
                AnyPublicKey::Rsa(key) => format!("an RSA key of {} bits", key.bits()),
                AnyPublicKey::Ed25519(_) => "an Ed25519 key".into(),
            };
            findings.push(CheckFinding::ok("public_key", what));
            Some(key)
        }
        Err(failed) => {
            let fix = "copy public.pem from the ceremony, or what `sunder quorum pubkey` prints";
            findings.push(error("public_key", failed.to_string(), fix));
            None
        }
    }
}

/// Says of a group with an RSA key that is shared by a polynomial that this is experimental.
fn experimental(kind: Option<GroupKeyKind>) -> Option<CheckFinding> {
    (kind == Some(GroupKeyKind::RsaPolynomial)).then(|| {
        let what = "the group shares its RSA key by a polynomial, which is experimental: nobody \
                    outside the project has reviewed it";
        let fix = "do not use it for a key that matters";
        CheckFinding::new(FindingSeverity::Warning, "key", what, fix)
    })
}

/// CometBFT cannot run the log of every group.
fn engine(
    config: &QuorumNodeConfig,
    bundle: Option<&QuorumBundle>,
    public: Option<&AnyPublicKey>,
) -> Option<CheckFinding> {
    // A bundle says it before the key is generated.
    let bundled = bundle.map(|bundle| bundle.header().key);
    let is_polynomial = bundled.is_some_and(|kind| kind != GroupKeyKind::Rsa)
        || matches!(public, Some(AnyPublicKey::Ed25519(_)));
    (config.cometbft.is_some() && is_polynomial).then(|| {
        let what = "the group shares its key by a polynomial, and CometBFT runs the log of groups \
                    with combinatorial shares of an RSA key only";
        error("cometbft", what, "remove `cometbft`: the servers then run the log themselves")
    })
}

fn master_key(config: &QuorumNodeConfig, findings: &mut Vec<CheckFinding>) -> Option<MasterKey> {
    let MasterKeySource::File(path) = &config.master_key else {
        let what = "it is a credential that only the service can read: the store was not tested";
        findings.push(CheckFinding::ok("master_credential", what));
        return None;
    };
    match MasterKey::read(&config.config_dir.join(path)) {
        Ok(master) => {
            findings.push(CheckFinding::ok("master_key", "it is readable, and only by its owner"));
            Some(master)
        }
        Err(failed) => {
            let fix = "name the file of the key that encrypts the store";
            findings.push(error("master_key", failed.to_string(), fix));
            None
        }
    }
}

/// Whether the store can be opened. What it has; `None` if that is unknown.
#[expect(clippy::option_option, reason = "unknown is not empty")]
fn store(
    directory: &Path,
    master: &MasterKey,
    findings: &mut Vec<CheckFinding>,
) -> Option<Option<QuorumStoreSummary>> {
    let shown = directory.display();
    match quorum::store::examine(directory, master) {
        Ok(None) => {
            findings.push(CheckFinding::ok(
                "store",
                format!(
                    "{shown} is empty: the server creates \
                                                             it"
                ),
            ));
            Some(None)
        }
        Ok(Some(store)) => {
            let what = match (store.epochs.last(), &store.start) {
                (Some(epoch), _) => format!("it has the shares of epoch {epoch}"),
                (None, Some(start)) if start.header().epoch == 0 => {
                    "its group has not generated the key yet".into()
                }
                (None, Some(start)) => {
                    format!("it follows epoch {}, but has no shares of it", start.header().epoch)
                }
                (None, None) => "the server waits until a group invites it".into(),
            };
            findings.push(CheckFinding::ok("store", what));
            Some(Some(store))
        }
        Err(QuorumStoreError::Trust(trust)) => {
            findings.push(untrusted("store", &trust));
            None
        }
        Err(failed) => {
            let fix = failed.advice().unwrap_or_else(|| {
                "make it readable and writable for the server's user, or empty the store: the \
                 server then recovers its shares from the others"
                    .into()
            });
            findings.push(error("store", failed.problem(), &fix));
            None
        }
    }
}

/// Whether the file system of a store, or of what is to be one, has space.
fn space(directory: &Path) -> Option<CheckFinding> {
    let existing = directory.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."));
    let found = statvfs(existing).ok()?;
    Some(space_of(existing, found.f_bavail.saturating_mul(found.f_frsize), found.f_favail))
}

/// `files` is 0 where the file system does not count them, too.
fn space_of(place: &Path, free: u64, files: u64) -> CheckFinding {
    let (shown, mib) = (place.display(), free >> 20);
    let fix = "free some space there, or give the store another file system";
    if free < CRITICAL_FREE_SPACE {
        let what = format!(
            "only {mib} MiB are free at {shown}: the server stops when no space is \
                            left"
        );
        return error("space", what, fix);
    }
    if free < REFRESH_FREE_SPACE {
        let what = format!("{mib} MiB are free at {shown}: a refresh of 13 servers may need 1024");
        return CheckFinding::new(FindingSeverity::Warning, "space", what, fix);
    }
    if (1..100).contains(&files) {
        let what = format!("only {files} more files can be created at {shown}");
        return error("space", what, "remove files there");
    }
    CheckFinding::ok("space", format!("{mib} MiB are free at {shown}"))
}

/// No signature depends on the clock, but when registrations and approvals expire.
fn clock(store: Option<&QuorumStoreSummary>, now: SystemTime) -> CheckFinding {
    let written = store.and_then(|store| store.audit_written);
    match written.and_then(|written| written.duration_since(now).ok()) {
        Some(behind) if behind > CLOCK_TOLERANCE => {
            let what = format!(
                "it is {} s behind the last line of the audit log, so the times in one of them are \
                 wrong; by the clock, registrations and approvals expire, and epochs become old",
                behind.as_secs()
            );
            let fix = "set the clock, for example with NTP";
            CheckFinding::new(FindingSeverity::Warning, "clock", what, fix)
        }
        _ => {
            CheckFinding::ok("clock", "times in logs, and when registrations expire, depend on it")
        }
    }
}

/// Whether the server has its shares, or can get them.
fn share(
    config: &QuorumNodeConfig,
    has_state: bool,
    identity: Option<&IdentitySecretKey>,
    public: Option<&AnyPublicKey>,
    findings: &mut Vec<CheckFinding>,
) {
    let Some(share) = &config.share else {
        if config.peers.is_empty() && config.bundle.is_none() && !has_state {
            findings.push(error(
                "share",
                "neither `bundle`, `share` nor a [[peer]] is set: the server cannot get shares",
                "name the bundle of the group, or the servers of the group that has the key",
            ));
        }
        return;
    };
    let path = config.config_dir.join(share);
    match (path.try_exists(), has_state) {
        (Ok(false), true) => {}
        (Ok(false), false) => {
            let what = format!("{} does not exist, and the store has no state", path.display());
            let fix = "name the file from the ceremony; a server that has lost its store has none, \
                       and a [[peer]] for each other server";
            findings.push(error("share", what, fix));
        }
        _ => findings.push(match read_share_file(&path) {
            Err(failed) => error("share", failed.to_string(), "copy it from the ceremony again"),
            Ok(file) if public.is_some_and(|public| public.rsa() != Some(file.public())) => {
                error("share", "it belongs to another key than `public_key`", "copy both again")
            }
            Ok(file) => {
                let member = file.header.group.member(file.server).map(|member| member.identity);
                if identity.is_some_and(|identity| Some(identity.public()) != member) {
                    let fix = "give this server its own share and identity, as in the list";
                    error("share", "it is for another `identity`", fix)
                } else {
                    let what = "it exists; the server destroys it as soon as it has started";
                    CheckFinding::ok("share", what)
                }
            }
        }),
    }
}

fn socket(key: &str, path: &Path) -> Option<CheckFinding> {
    if path.as_os_str().len() > MAX_SOCKET_PATH {
        let what = format!("{} has more than {MAX_SOCKET_PATH} bytes", path.display());
        return Some(error(key, what, "choose a shorter path"));
    }
    TrustedFolder::containing(path).err().map(|error| untrusted(key, &error))
}

/// Whether the group knows this server, at an address where it listens.
fn member(
    config: &QuorumNodeConfig,
    store: Option<&QuorumStoreSummary>,
    own: &IdentityPublicKey,
) -> Option<CheckFinding> {
    let start = store?.start.as_ref()?;
    let refresh = start.refresh.as_ref().map(|refresh| &refresh.header);
    let headers = [Some(start.header()), refresh];
    let mut headers = headers.into_iter().flatten();
    let Some(member) = headers.find_map(|header| header.group.member(header.group.index_of(own)?))
    else {
        let epoch = start.header().epoch;
        let what = format!("the group of epoch {epoch} does not have this server's identity");
        let fix = "name the identity key that is in the list of servers, or stop this server: the \
                   key has moved to others";
        return Some(CheckFinding::new(FindingSeverity::Warning, "group", what, fix));
    };
    let ports: Vec<u16> = config.listen.iter().map(SocketAddr::port).collect();
    (!ports.contains(&member.address.port())).then(|| {
        let what = format!("the group reaches this server at {}", member.address);
        let fix = "listen on this port, or forward it";
        CheckFinding::new(
            FindingSeverity::Warning,
            "listen",
            format!("{what}, but it listens on other ports"),
            fix,
        )
    })
}

/// What the server says of itself, if it runs.
async fn running(config: &QuorumNodeConfig, has_never_run: bool) -> Vec<CheckFinding> {
    let path = config.config_dir.join(&config.socket);
    let client = QuorumApiClient::new(&path);
    let mut findings = Vec::new();
    match client.health().await {
        Ok(health) if health.ok => {
            let epoch = health.epoch.unwrap_or_default();
            let what =
                format!("it runs in epoch {epoch}, and {} others are connected", health.connected);
            findings.push(CheckFinding::ok("server", what));
        }
        Ok(health) => {
            let (problem, fix) = page::problem_and_remedy(&health.problem);
            findings.push(error("server", problem, fix));
        }
        Err(QuorumApiError::Denied { .. }) => {
            let fix = "run this as the server's user, or as root";
            let what = format!("this user may not ask at {}", path.display());
            findings.push(CheckFinding::new(FindingSeverity::Note, "server", what, fix));
        }
        Err(QuorumApiError::Unconnected { .. }) => {
            let what = if has_never_run {
                "it does not run, and has never run"
            } else {
                "it does not run"
            };
            let fix = "sunder quorum node --config, with this configuration";
            findings.push(CheckFinding::new(FindingSeverity::Note, "server", what, fix));
        }
        Err(failed) => {
            let fix = "see its log, and start it again";
            findings.push(error("server", failed.to_string(), fix));
        }
    }
    if let Ok(refresh) = client.refresh().await
        && !refresh.problem.is_empty()
    {
        let RefreshStatus { problem, remedy, .. } = refresh;
        findings.push(CheckFinding::new(FindingSeverity::Warning, "refresh", problem, remedy));
    }
    findings
}

/// The servers with which this one has links, by the configuration, whose addresses go before those
/// that the groups have signed, and by what it has.
fn all_peers(config: &QuorumNodeConfig, store: Option<&QuorumStoreSummary>) -> Vec<QuorumPeer> {
    let share = config.share.as_ref().map(|share| config.config_dir.join(share));
    let share = share.and_then(|path: PathBuf| read_share_file(&path).ok());
    let start = store.and_then(|store| store.start.as_ref());
    let refresh = start.and_then(|start| start.refresh.as_ref());
    let mut groups = Vec::new();
    groups.extend(start.map(|start| &start.header().group));
    groups.extend(refresh.map(|refresh| &refresh.header.group));
    let bundle = config.bundle.as_ref().map(|bundle| config.config_dir.join(bundle));
    let bundle = bundle.and_then(|path| read_bundle(&path).ok());
    if start.is_none() {
        groups.extend(bundle.as_ref().map(|bundle| &bundle.header().group));
        groups.extend(share.as_ref().map(|file| &file.header.group));
    }
    let members = groups.into_iter().flat_map(QuorumGroup::members);
    let mut peers: Vec<QuorumPeer> = Vec::new();
    let members =
        members.map(|member| QuorumPeer { key: member.identity, address: member.address.into() });
    for peer in config.peers.iter().cloned().chain(members) {
        if peers.iter().all(|known| known.key != peer.key) {
            peers.push(peer);
        }
    }
    peers
}

/// Whether each server answers with its key.
async fn peers(own: &Arc<IdentitySecretKey>, peers: Vec<QuorumPeer>) -> Vec<CheckFinding> {
    let others = peers.into_iter().filter(|peer| peer.key != own.public()).collect();
    let found = probe_all(own, others).await;
    found.into_iter().map(|(peer, found)| of_peer(&peer, found)).collect()
}

fn of_peer(peer: &QuorumPeer, found: LinkProbeResult) -> CheckFinding {
    let name = peer.key.to_string();
    let at = format!("{} at {}", name.get(..8).unwrap_or(&name), peer.address);
    let warning =
        |what: String, fix: &str| CheckFinding::new(FindingSeverity::Warning, "peer", what, fix);
    match found {
        LinkProbeResult::Answers => {
            CheckFinding::ok("peer", format!("{at} has its key, and accepts this server"))
        }
        LinkProbeResult::Connects => {
            CheckFinding::ok("peer", format!("{at} has its key, and connects to this one"))
        }
        LinkProbeResult::Unknown => {
            let fix = "check `identity` here, and the list of servers or the [[peer]] there";
            error("peer", format!("{at} does not know this server's identity"), fix)
        }
        LinkProbeResult::Other(what) => {
            let fix = "check its identity and address in the list of servers or the [[peer]] here";
            error("peer", format!("{at}: {what}"), fix)
        }
        LinkProbeResult::Refused => {
            let fix = "start the server there, or check its address here and its `listen`";
            warning(format!("{at}: nobody listens there"), fix)
        }
        LinkProbeResult::Unreachable(why) => {
            let fix = "check that the host there is up, and that no firewall blocks the path";
            warning(format!("{at}: {why}"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_space_is_reported() {
        let place = Path::new("/x");
        for (free, files, level) in [
            (2 << 30, 0, FindingSeverity::Ok),
            (2 << 30, 5, FindingSeverity::Error),
            (1 << 29, 9999, FindingSeverity::Warning),
            (1 << 20, 9999, FindingSeverity::Error),
        ] {
            assert_eq!(space_of(place, free, files).level, level, "{free} {files}");
        }
        assert!(space(Path::new("/nothing/is/here")).unwrap().message.ends_with(" at /"));
    }

    #[test]
    fn a_clock_that_was_set_back_is_reported() {
        let now = SystemTime::now();
        let store = |written| QuorumStoreSummary {
            start: None,
            epochs: vec![],
            audit_written: Some(written),
        };
        assert_eq!(clock(Some(&store(now)), now).level, FindingSeverity::Ok);
        let ahead = store(now + Duration::from_secs(3600));
        let found = clock(Some(&ahead), now);
        assert!(
            found.level == FindingSeverity::Warning && found.message.contains("3600 s behind"),
            "{found:?}"
        );
    }
}
