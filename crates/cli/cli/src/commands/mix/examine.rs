//! Tests a proxy's configuration on this host.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use keys::IdentitySecretKey;
use keys::file::exposure;
use keys::trusted::{TrustError, TrustedFolder};
use mix::client::MAX_BYTES_PER_DAY;
use mix::proxy::{MixGroupConfig, MixProxyConfig};
use mix::{ArchiveCost, MemberCost, ProxyCost, StateFileError, StateFolder};
use rustix::fs::statvfs;

use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::listeners::OwnListeners;
use crate::checks::{host, listeners};

/// The findings. A state directory that does not exist is not made.
pub(super) fn findings(config: &MixProxyConfig, own: &OwnListeners) -> Vec<CheckFinding> {
    let mut findings = vec![identity(&config.config_dir.join(&config.identity))];
    findings.extend(listen(&config.listen, own));
    findings.push(state(&config.config_dir.join(&config.state)));
    if config.groups.is_empty() {
        let what = "there is none: nobody can chat";
        findings.push(CheckFinding::new(
            FindingSeverity::Warning,
            "group",
            what,
            "add a [[group]]",
        ));
    }
    for group in &config.groups {
        findings.push(cost(group));
        findings.extend(kept(group));
    }
    findings.extend(total(config));
    findings.extend(disk(config));
    findings.push(host::random());
    findings
}

fn identity(path: &Path) -> CheckFinding {
    let error =
        |what: String, fix: &str| CheckFinding::new(FindingSeverity::Error, "identity", what, fix);
    match (IdentitySecretKey::read(path), exposure(path)) {
        (Err(failed), _) => error(failed.to_string(), "name the file of the proxy's key"),
        (Ok(_), Some(exposed)) => error(exposed.problem(), &exposed.advice()),
        (Ok(key), None) => {
            CheckFinding::ok("identity", format!("proxy_key = \"{}\"", key.public()))
        }
    }
}

fn listen(address: &str, own: &OwnListeners) -> Vec<CheckFinding> {
    let addresses: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(failed) => {
            let fix = "give an address of this host and a port, as in 0.0.0.0:6700";
            let what = format!("{address}: {failed}");
            return vec![CheckFinding::new(FindingSeverity::Error, "listen", what, fix)];
        }
    };
    let addresses = addresses.into_iter().flat_map(|address| {
        let in_use = move || own.address_in_use("listen", address, "mix");
        [listeners::tcp("listen", address, in_use), listeners::udp("listen", address, in_use)]
    });
    addresses.collect()
}

/// What a group costs its members, and how fast it is.
fn cost(group: &MixGroupConfig) -> CheckFinding {
    let members = group.terms.shape().members();
    let cost = MemberCost::new(&group.terms, members);
    let what = format!("with {members} members, each connected all day: {cost}");
    let subject = format!("group {}", group.name);
    let bytes = cost.up_per_day.saturating_add(cost.down_per_day);
    if bytes <= MAX_BYTES_PER_DAY {
        return CheckFinding::ok(subject, what);
    }
    let needed = bytes.div_ceil(1_000_000);
    let fix = format!(
        "have longer rounds (min_interval_ms) or fewer slots, or tell the members to set \
         max_mb_per_day = {needed}: otherwise their chats refuse it"
    );
    CheckFinding::new(FindingSeverity::Warning, subject, what, fix)
}

/// What all groups cost the proxy; `None` if there are none.
fn total(config: &MixProxyConfig) -> Option<CheckFinding> {
    if config.groups.is_empty() {
        return None;
    }
    let cost = ProxyCost::new(config.groups.iter().map(|group| &group.terms));
    Some(CheckFinding::ok("all groups", format!("if all members are connected: {cost}")))
}

/// How long the rounds are kept that `keep_mb` allows; `None` if none are.
fn kept(group: &MixGroupConfig) -> Option<CheckFinding> {
    let (keep, keep_bytes) = (group.archive.keep, group.archive.keep_bytes);
    if keep.is_zero() {
        return None;
    }
    let cost = ArchiveCost::new(&group.terms);
    let lasts = cost.period(keep_bytes);
    let what = format!(
        "keep_mb = {} is enough for {} with {} members",
        keep_bytes / 1_000_000,
        period(lasts),
        group.terms.shape().members(),
    );
    let subject = format!("group {}", group.name);
    if lasts >= keep {
        return Some(CheckFinding::ok(subject, what));
    }
    let what = format!("{what}, and keep is {}", period(keep));
    let needed_mb = cost.bytes(keep).div_ceil(1_000_000);
    let fix = format!(
        "give keep_mb = {needed_mb}, a shorter keep, or a profile with longer rounds; otherwise a \
         member that is away for longer misses rounds"
    );
    Some(CheckFinding::new(FindingSeverity::Warning, subject, what, fix))
}

/// A period for a person, in hours or days.
fn period(of: Duration) -> String {
    let hours = of.as_secs_f64() / 3600.0;
    if hours < 48.0 { format!("{hours:.1} hours") } else { format!("{:.1} days", hours / 24.0) }
}

/// Whether the kept rounds of all groups fit on the disk of the state.
fn disk(config: &MixProxyConfig) -> Option<CheckFinding> {
    let kept: u64 = config.groups.iter().map(|group| group.archive.keep_bytes).sum();
    if kept == 0 {
        return None;
    }
    // The directory itself may not exist yet.
    let state = Path::new(".").join(&config.config_dir).join(&config.state);
    let disk = state.ancestors().find_map(|path| statvfs(path).ok())?;
    let size = disk.f_blocks.saturating_mul(disk.f_frsize);
    let [kept_mb, size_mb] = [kept, size].map(|bytes| bytes / 1_000_000);
    let what = format!("groups may keep {kept_mb} MB of rounds; the disk has {size_mb} MB");
    Some(if kept > size {
        let fix = "give some groups a smaller keep_mb, or move them to another proxy";
        CheckFinding::new(FindingSeverity::Warning, "keep_mb", what, fix)
    } else {
        CheckFinding::ok("keep_mb", what)
    })
}

fn state(path: &Path) -> CheckFinding {
    let error =
        |what: String, fix: String| CheckFinding::new(FindingSeverity::Error, "state", what, fix);
    if !path.exists() {
        let above = path.parent().unwrap_or(Path::new("/"));
        return match TrustedFolder::new(above) {
            Ok(_) | Err(TrustError::Unreadable { .. }) => {
                let what = format!("{} is created at the first start", path.display());
                CheckFinding::ok("state", what)
            }
            Err(failed) => error(failed.problem(), failed.advice()),
        };
    }
    match StateFolder::open(path) {
        Ok(_) => CheckFinding::ok("state", format!("{} can be used", path.display())),
        Err(StateFileError::Locked { .. }) => {
            let what = format!("{} is in use: by this mix, if it is running", path.display());
            CheckFinding::new(
                FindingSeverity::Warning,
                "state",
                what,
                "if it is not running, see which program uses it: lsof",
            )
        }
        Err(StateFileError::Untrusted(failed)) => error(failed.problem(), failed.advice()),
        Err(failed) => error(failed.to_string(), "make it writable for this user".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A configuration of groups, each with these further settings.
    fn config(groups: &[&str]) -> MixProxyConfig {
        let key = "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c";
        let mut text = "identity = \"x\"\nlisten = \"127.0.0.1:0\"\nstate = \"y\"\n".to_owned();
        for (number, settings) in groups.iter().enumerate() {
            let name = format!("name = \"g{number}\"");
            let administrator = format!("administrator = \"{key}\"");
            text += &["[[group]]", &name, &administrator, settings, ""].join("\n");
        }
        MixProxyConfig::from_toml(&text).unwrap()
    }

    #[test]
    fn the_cost_of_one_group_or_more_is_computed() {
        assert_eq!(total(&config(&[])), None);
        for (groups, connections) in [(&["members = 4"][..], 4), (&["members = 4", ""][..], 20)] {
            let found = total(&config(groups)).unwrap();
            let begin = format!("if all members are connected: {connections} connections, ");
            assert!(found.message.starts_with(&begin), "{}", found.message);
        }
    }

    #[test]
    fn too_small_a_keep_mb_is_a_warning() {
        let config = config(&[
            "",
            "profile = \"messenger\"",
            "keep = \"12h\"",
            "keep_mb = 13400",
            "keep = \"0s\"",
            "engine = \"ot\"",
        ]);
        let found: Vec<_> = config.groups.iter().map(kept).collect();
        let levels: Vec<_> = found.iter().map(|it| it.as_ref().map(|it| it.level)).collect();
        let (fine, small) = (Some(FindingSeverity::Ok), Some(FindingSeverity::Warning));
        assert_eq!(levels, [small, fine, fine, fine, None, None]);
        let first = found[0].as_ref().unwrap();
        let expected =
            "keep_mb = 1000 is enough for 12.6 hours with 16 members, and keep is 7.0 days";
        assert_eq!(first.message, expected);
        let fix = first.fix.as_ref().unwrap();
        assert!(fix.starts_with("give keep_mb = 13376,"), "{fix}");
    }
}
