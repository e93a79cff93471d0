//! Tests a server's configuration on this host.

use std::net::SocketAddr;
use std::time::Duration;

use console::CommandFailure;
use micss::allow::AllowedService;
use micss::config::{Integrity, MicssServerConfig, StreamChannelConfig};
use micss::target::TargetHost;
use tokio::net::lookup_host;
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::{open_listeners, within_limits};
use crate::checks::finding::{CheckFinding, FindingSeverity};
use crate::checks::greeting::{GreetingOutcome, probe_channel};
use crate::checks::listeners::OwnListeners;
use crate::checks::{host, listeners};

/// How long the lookup of a name may take.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(3);

/// The findings.
///
/// # Errors
/// When the system refuses to start threads.
pub(crate) fn findings(
    config: &MicssServerConfig,
    own: &OwnListeners,
) -> Result<Vec<CheckFinding>, CommandFailure> {
    let runtime = service::runtime()?;
    let mut findings = risks(config);
    findings.extend(open_listeners(config));
    let places = config.listen.iter().enumerate();
    findings.extend(places.map(|(index, address)| {
        let subject = format!("listen {}", index + 1);
        listeners::tcp(&subject, *address, || in_use(&subject, *address, own, &runtime))
    }));
    let questions = config.directory.iter().flat_map(|directory| &directory.listen);
    findings.extend(questions.map(|address| {
        let subject = "directory, listen";
        listeners::tcp(subject, *address, || own.address_in_use(subject, *address, "serve"))
    }));
    findings.extend(runtime.block_on(services(&config.allow)));
    runtime.shutdown_background();
    let possible = within_limits(config.clone()).max_streams;
    findings.push(host::open_files(config.max_streams, possible, config.max_channels.into()));
    findings.push(host::random());
    Ok(findings)
}

/// What the configuration allows, but is rarely intended.
fn risks(config: &MicssServerConfig) -> Vec<CheckFinding> {
    let warning = |subject: &str, what: &str, fix: &str| {
        CheckFinding::new(FindingSeverity::Warning, subject, what, fix)
    };
    let mut risks = Vec::new();
    if config.min_channels == 1 {
        let what = "a client may use a single channel: an eavesdropper on it reads everything";
        risks.push(warning(
            "min_channels",
            what,
            "set it to the number of channels that clients \
                                                  have",
        ));
    }
    if config.integrity == Integrity::None {
        let what = "clients may ask for streams on which changes go unnoticed";
        risks.push(warning("integrity", what, "leave it out"));
    }
    if config.allow.is_empty() {
        let what = "it is empty, so clients reach nothing";
        risks.push(warning("allow", what, "name a service, as in allow = [\"localhost:80\"]"));
    }
    let listen = &config.listen;
    let twice = listen.iter().enumerate().find_map(|(second, address)| {
        let first = listen[..second].iter().position(|other| other.ip() == address.ip())?;
        Some((first + 1, second + 1, address.ip()))
    });
    if let Some((first, second, ip)) = twice {
        let what =
            format!("{first} and {second} are both at {ip}: clients reach both over the same path");
        risks.push(warning("listen", &what, "listen at an address on each network"));
    }
    risks
}

/// The finding for an address in use. If it is unknown where this server listens, and a server of
/// streams answers there, it is taken for this one.
fn in_use(
    subject: &str,
    address: SocketAddr,
    own: &OwnListeners,
    runtime: &Runtime,
) -> CheckFinding {
    if !own.0.is_empty() {
        return own.address_in_use(subject, address, "serve");
    }
    let channel = StreamChannelConfig::to(address);
    if let GreetingOutcome::Greeted(_) = runtime.block_on(probe_channel(&channel)) {
        return CheckFinding::ok(subject, format!("{address} is in use by a running sunder serve"));
    }
    let what = format!("{address} is in use by another program");
    let fix = format!("see which one: ss -lntp 'sport = :{}'", address.port());
    CheckFinding::new(FindingSeverity::Error, subject, what, fix)
}

/// Whether this host can look up the names of the services.
async fn services(allowed: &[AllowedService]) -> Vec<CheckFinding> {
    let mut asking = JoinSet::new();
    for (index, allowed) in allowed.iter().enumerate() {
        if let AllowedService::Service(target) = allowed
            && let TargetHost::Name(name) = target.host()
        {
            let (name, port) = (name.clone(), target.port());
            asking.spawn(async move {
                let found = timeout(LOOKUP_TIMEOUT, lookup_host((name.as_str(), port))).await;
                let is_found =
                    found.is_ok_and(|found| found.is_ok_and(|mut all| all.next().is_some()));
                (index, name, is_found)
            });
        }
    }
    let mut answers = asking.join_all().await;
    answers.sort();
    let unknown = answers.into_iter().filter(|(.., is_found)| !is_found);
    let finding = |(index, name, _): (usize, String, bool)| {
        let what = format!("this host cannot resolve {name}");
        let fix = format!("check `getent hosts {name}`, or give the service's address");
        CheckFinding::new(FindingSeverity::Warning, format!("allow {}", index + 1), what, fix)
    };
    unknown.map(finding).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn an_address_used_by_another_program_is_an_error() {
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = other.local_addr().unwrap();
        // It closes the connection, as many programs do after an unexpected request.
        let closer = std::thread::spawn(move || drop(other.accept()));
        let text = format!(
            "listen = [\"{address}\", \"127.0.0.1:0\"]\nmin_channels = 1\nintegrity = \"none\"\n\
             allow = [\"localhost:1\", \"no-such-name.invalid:1\"]\n"
        );
        let config = MicssServerConfig::from_toml(&text).unwrap();
        let found = findings(&config, &OwnListeners::default()).unwrap();
        closer.join().unwrap();
        let subjects = |level: FindingSeverity| -> Vec<&str> {
            let of_level = found.iter().filter(|finding| finding.level == level);
            of_level.map(|finding| finding.subject.as_str()).collect()
        };
        assert_eq!(subjects(FindingSeverity::Error), ["listen 1"], "{found:#?}");
        let warnings = subjects(FindingSeverity::Warning);
        for subject in ["min_channels", "integrity", "listen", "allow 2"] {
            assert!(warnings.contains(&subject), "{subject}: {found:#?}");
        }
        let nothing = MicssServerConfig { allow: Vec::new(), ..config };
        assert!(risks(&nothing).iter().any(|risk| risk.subject == "allow"));
    }
}
