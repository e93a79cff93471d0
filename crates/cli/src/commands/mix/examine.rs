//! Tests a proxy's configuration on this host.

use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;

use keys::SecretKey;
use keys::file::exposure;
use keys::trusted::{TrustError, TrustedFolder};
use mix::proxy::Config;
use mix::{StateFileError, StateFolder};

use crate::checks::finding::{Finding, Level};
use crate::checks::{host, listeners};

/// The findings. A state directory that does not exist is not made.
pub(super) fn findings(config: &Config) -> Vec<Finding> {
    let mut findings = vec![identity(&config.config_dir.join(&config.identity))];
    findings.extend(listen(&config.listen));
    findings.push(state(&config.config_dir.join(&config.state)));
    if config.groups.is_empty() {
        let what = "there is none: nobody can talk";
        findings.push(Finding::new(Level::Warning, "group", what, "add a [[group]]"));
    }
    findings.push(host::random());
    findings
}

fn identity(path: &Path) -> Finding {
    let error = |what: String, fix: &str| Finding::new(Level::Error, "identity", what, fix);
    match (SecretKey::read(path), exposure(path)) {
        (Err(failed), _) => error(failed.to_string(), "name the file of the proxy's key"),
        (Ok(_), Some(exposed)) => error(exposed.what(), &exposed.fix()),
        (Ok(key), None) => Finding::ok("identity", format!("proxy_key = \"{}\"", key.public())),
    }
}

fn listen(address: &str) -> Vec<Finding> {
    let addresses: Vec<SocketAddr> = match address.to_socket_addrs() {
        Ok(addresses) => addresses.collect(),
        Err(failed) => {
            let fix = "give an address of this host and a port, as in 0.0.0.0:6700";
            let what = format!("{address}: {failed}");
            return vec![Finding::new(Level::Error, "listen", what, fix)];
        }
    };
    let addresses = addresses.into_iter().flat_map(|address| {
        let in_use = move || listeners::own_or_anothers("listen", address, "mix");
        [listeners::tcp("listen", address, in_use), listeners::udp("listen", address, in_use)]
    });
    addresses.collect()
}

fn state(path: &Path) -> Finding {
    let error = |what: String, fix: String| Finding::new(Level::Error, "state", what, fix);
    if !path.exists() {
        let above = path.parent().unwrap_or(Path::new("/"));
        return match TrustedFolder::new(above) {
            Ok(_) | Err(TrustError::Unreadable { .. }) => {
                Finding::ok("state", format!("{} is made at the first start", path.display()))
            }
            Err(failed) => error(failed.what(), failed.fix()),
        };
    }
    match StateFolder::open(path) {
        Ok(_) => Finding::ok("state", format!("{} can be used", path.display())),
        Err(StateFileError::Locked { .. }) => {
            let what = format!("{} is in use: by this mix, if it is running", path.display());
            Finding::new(Level::Warning, "state", what, "if it is not, see who has it: lsof")
        }
        Err(StateFileError::Untrusted(failed)) => error(failed.what(), failed.fix()),
        Err(failed) => error(failed.to_string(), "make it writable for this user".into()),
    }
}
