//! The status socket: it answers every connection with one JSON document about the process.
//!
//! The document has the key `kind`, which is the command's name, and the keys of the command's own
//! [`ServiceStatus`]. Sockets are in one [`directory`], named `KIND-NAME.sock`.

use std::fmt::{self, Display, Formatter};
use std::fs::{self, DirBuilder};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tracing::warn;

use crate::accept::RoundRobinAcceptor;
use crate::listening::listen_unix;
use crate::metrics::{Exposition, PrometheusMetric, gauge};

/// The time in which a client of the socket has to read the answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);

/// Something that is wrong with a service.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ServiceProblem {
    /// What is wrong, in one line.
    pub text: String,
    /// How long it has lasted, in seconds. `None` if that is not known.
    pub since_s: Option<f64>,
    /// What to do.
    pub remedy: String,
}

impl ServiceProblem {
    /// A problem, since when it has lasted, and what to do.
    pub fn new(text: impl Into<String>, since_s: Option<f64>, remedy: impl Into<String>) -> Self {
        Self { text: text.into(), since_s, remedy: remedy.into() }
    }
}

/// One line for a person.
impl Display for ServiceProblem {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let Self { text, since_s, remedy } = self;
        match since_s {
            Some(seconds) => write!(formatter, "{text} (for {}): {remedy}", format_age(*seconds)),
            None => write!(formatter, "{text}: {remedy}"),
        }
    }
}

/// A duration in seconds, in a few characters for a person.
pub fn format_age(seconds: f64) -> String {
    match seconds {
        ..120.0 => format!("{seconds:.0} s"),
        ..7200.0 => format!("{:.0} min", seconds / 60.0),
        ..172_800.0 => format!("{:.0} h", seconds / 3600.0),
        _ => format!("{:.0} d", seconds / 86_400.0),
    }
}

/// The status of a service. It is written and read as JSON.
pub trait ServiceStatus: Serialize + DeserializeOwned + 'static {
    /// Its metrics, without those that all services have.
    const METRICS: &'static [PrometheusMetric<Self>];

    /// Its name, unique among services of its kind: that of its configuration, or of its device.
    fn name(&self) -> &str;

    /// Changes its name.
    fn set_name(&mut self, name: String);

    /// Its uptime in seconds.
    fn uptime_s(&self) -> f64;

    /// The addresses on which it listens. Empty if it does not say.
    fn listen(&self) -> Vec<SocketAddr> {
        Vec::new()
    }

    /// What is wrong with it now.
    fn problems(&self) -> Vec<ServiceProblem> {
        Vec::new()
    }

    /// Adds its metrics, with those of all services first.
    fn expose(&self, kind: &str, exposition: &mut Exposition) {
        let of_all: [PrometheusMetric<Self>; 2] = [
            gauge("sunder_uptime_seconds", "How long it has run.", |status, samples| {
                samples.add(&[], status.uptime_s());
            }),
            gauge("sunder_problems", "Problems that sunder status names.", |status, samples| {
                samples.add(&[], status.problems().len());
            }),
        ];
        exposition.add(kind, self.name(), &of_all, self);
        exposition.add(kind, self.name(), Self::METRICS, self);
    }

    /// Sets the name to that of its socket, which differs if two services have the same name.
    fn take_name_of(&mut self, kind: &str, socket: &Path) {
        let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(name) = stem.strip_prefix(&format!("{kind}-")) {
            self.set_name(name.to_owned());
        }
    }
}

/// The document with which a socket answers.
#[derive(Serialize)]
struct StatusDocument<'a, S> {
    kind: &'a str,
    #[serde(flatten)]
    status: S,
}

/// The name of a service with this configuration: the file's name without its extension.
pub fn name_of(config: &Path) -> String {
    config.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The directory of status sockets: `$RUNTIME_DIRECTORY` (systemd's), or `/run/sunder` for root, or
/// `sunder` in `$XDG_RUNTIME_DIR`.
pub fn directory() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("RUNTIME_DIRECTORY") {
        return Some(given.into());
    }
    if rustix::process::geteuid().is_root() {
        return Some("/run/sunder".into());
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(|given| Path::new(&given).join("sunder"))
}

/// A status socket. It is removed when this is dropped.
#[derive(Debug)]
pub struct StatusSocket {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for StatusSocket {
    fn drop(&mut self) {
        self.task.abort();
        // If it cannot be removed, connections to it are refused.
        let _ = fs::remove_file(&self.path);
    }
}

impl StatusSocket {
    /// Opens a status socket for a service of this kind, and answers its clients until the socket
    /// is dropped. Must be called in a runtime. If the socket cannot be opened, logs that and
    /// returns nothing: the service runs without it. `check` must fail for a directory in which
    /// another user could replace the socket, and so answer in place of the service.
    pub fn open<S: ServiceStatus>(
        kind: &'static str,
        check: impl FnOnce(&Path) -> io::Result<()>,
        status: impl Fn() -> S + Send + 'static,
    ) -> Option<Self> {
        let (listener, path) = match bind(&format!("{kind}-{}", status().name()), check) {
            Ok(bound) => bound,
            Err(error) => {
                warn!("`sunder status` will not see this: {error}");
                return None;
            }
        };
        let task = tokio::spawn(async move {
            let (listeners, mut round_robin) = ([listener], RoundRobinAcceptor::default());
            loop {
                let (_, mut stream, _) = round_robin.accept(&listeners).await;
                let mut text = serde_json::to_vec(&StatusDocument { kind, status: status() })
                    .unwrap_or_default();
                text.push(b'\n');
                // If the client does not read the answer in time, it is dropped.
                let _ = timeout(ANSWER_TIMEOUT, stream.write_all(&text)).await;
            }
        });
        Some(Self { path, task })
    }
}

fn bind(
    name: &str,
    check: impl FnOnce(&Path) -> io::Result<()>,
) -> io::Result<(UnixListener, PathBuf)> {
    let missing = || io::Error::other("there is no directory for it: set RUNTIME_DIRECTORY");
    let directory = directory().ok_or_else(missing)?;
    DirBuilder::new().recursive(true).mode(0o755).create(&directory)?;
    check(&directory)?;
    let mut path = directory.join(format!("{name}.sock"));
    if StdUnixStream::connect(&path).is_ok() {
        // Another service has the same name, for example in another network namespace.
        path = directory.join(format!("{name}-{}.sock", std::process::id()));
    }
    // A socket that does not answer was left by an earlier process.
    let _ = fs::remove_file(&path);
    Ok((listen_unix(&path, 0o600)?, path))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    struct Named {
        name: String,
        streams: u64,
    }

    impl ServiceStatus for Named {
        const METRICS: &'static [PrometheusMetric<Self>] = &[];

        fn name(&self) -> &str {
            &self.name
        }

        fn set_name(&mut self, name: String) {
            self.name = name;
        }

        fn uptime_s(&self) -> f64 {
            0.0
        }
    }

    #[tokio::test]
    async fn a_socket_is_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.sock");
        let _listener = listen_unix(&path, 0o600).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn a_document_names_its_kind_first() {
        let status = Named { name: "office".into(), streams: u64::MAX };
        let text = serde_json::to_string(&StatusDocument { kind: "proxy", status }).unwrap();
        let expected = r#"{"kind":"proxy","name":"office","streams":18446744073709551615}"#;
        assert_eq!(text, expected);
    }

    #[test]
    fn two_of_one_name_are_distinguished_by_their_sockets() {
        let name = |socket: &str| {
            let mut status = Named { name: "office".into(), streams: 0 };
            status.take_name_of("proxy", Path::new(socket));
            status.name
        };
        assert_eq!(name("/run/sunder/proxy-office.sock"), "office");
        assert_eq!(name("/run/sunder/proxy-office-42.sock"), "office-42");
        assert_eq!(name("/run/sunder/serve-x.sock"), "office", "another kind's");
    }
}
