//! The status socket: whoever connects to it is told in one JSON document what this process does.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use keys::trusted::TrustedFolder;
use rustix::fs::Mode;
use rustix::process::umask;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncWriteExt;
use tokio::net::UnixListener;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};
use tracing::warn;

/// How long somebody who asks may take to read the answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// What a process tells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase")]
pub(crate) enum Told {
    /// An end of a tunnel.
    Tunnel(Box<remicss::status::Status>),
    /// A client of streams.
    Proxy(Named),
    /// A server of streams.
    Serve(Named),
}

/// A client or a server, by its configuration's name.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Named {
    /// The name.
    pub(crate) name: String,
    /// What it does.
    #[serde(flatten)]
    pub(crate) status: micss::status::Status,
}

impl Told {
    /// What kind of process it is: the command's name.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Tunnel(_) => "tunnel",
            Self::Proxy(_) => "proxy",
            Self::Serve(_) => "serve",
        }
    }

    /// What it is called: a tunnel by its device.
    pub(crate) fn name(&self) -> &str {
        match self {
            Self::Tunnel(status) => &status.device,
            Self::Proxy(named) | Self::Serve(named) => &named.name,
        }
    }

    /// Gives it the name that its socket has, which is another where two would have the same.
    pub(crate) fn named_by(mut self, socket: &Path) -> Self {
        let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
        if let Some(own) = stem.strip_prefix(&format!("{}-", self.kind())) {
            match &mut self {
                Self::Tunnel(status) => own.clone_into(&mut status.device),
                Self::Proxy(named) | Self::Serve(named) => own.clone_into(&mut named.name),
            }
        }
        self
    }

    /// How long it has run, in seconds.
    pub(crate) fn uptime_s(&self) -> f64 {
        match self {
            Self::Tunnel(status) => status.uptime_s,
            Self::Proxy(named) | Self::Serve(named) => named.status.uptime_s,
        }
    }
}

/// What a service is called whose configuration is there.
pub(crate) fn name_of(config: &Path) -> String {
    config.file_stem().unwrap_or_default().to_string_lossy().into_owned()
}

/// The directory of status sockets: `$RUNTIME_DIRECTORY` (systemd's), or `/run/sunder` for root, or
/// `sunder` in `$XDG_RUNTIME_DIR`.
pub(crate) fn directory() -> Option<PathBuf> {
    if let Some(given) = std::env::var_os("RUNTIME_DIRECTORY") {
        return Some(given.into());
    }
    if rustix::process::geteuid().is_root() {
        return Some("/run/sunder".into());
    }
    std::env::var_os("XDG_RUNTIME_DIR").map(|given| Path::new(&given).join("sunder"))
}

/// A status socket, which is gone when this is.
pub(crate) struct Telling {
    path: PathBuf,
    task: JoinHandle<()>,
}

impl Drop for Telling {
    fn drop(&mut self) {
        self.task.abort();
        // Who finds it later finds nobody there.
        let _ = fs::remove_file(&self.path);
    }
}

/// Tells whoever asks, until what it returns is dropped. Without a place for its socket, it tells nobody.
pub(crate) fn tell(told: impl Fn() -> Told + Send + 'static) -> Option<Telling> {
    let first = told();
    let (listener, path) = match bind(&format!("{}-{}", first.kind(), first.name())) {
        Ok(bound) => bound,
        Err(error) => {
            warn!("`sunder status` will not see this: {error}");
            return None;
        }
    };
    let task = tokio::spawn(async move {
        loop {
            let Ok((mut stream, _)) = listener.accept().await else {
                // Too many open files, usually.
                sleep(Duration::from_millis(100)).await;
                continue;
            };
            let mut text = serde_json::to_vec(&told()).unwrap_or_default();
            text.push(b'\n');
            // Who does not wait for the answer does not want it.
            let _ = timeout(PATIENCE, stream.write_all(&text)).await;
        }
    });
    Some(Telling { path, task })
}

fn bind(name: &str) -> io::Result<(UnixListener, PathBuf)> {
    let missing = || io::Error::other("there is no directory for it: set RUNTIME_DIRECTORY");
    let directory = directory().ok_or_else(missing)?;
    DirBuilder::new().recursive(true).mode(0o755).create(&directory)?;
    // Where others can put a socket in the place of this one, they would answer for it.
    TrustedFolder::new(&directory).map_err(io::Error::other)?;
    let mut path = directory.join(format!("{name}.sock"));
    if StdUnixStream::connect(&path).is_ok() {
        // Another has this name, as in another network namespace.
        path = directory.join(format!("{name}-{}.sock", std::process::id()));
    }
    // What is there and does not answer is left from before.
    let _ = fs::remove_file(&path);
    Ok((listen(&path)?, path))
}

/// Listens at a socket that nobody else can connect to, not even at first.
fn listen(path: &Path) -> io::Result<UnixListener> {
    let before = umask(Mode::from_raw_mode(0o177));
    let listener = UnixListener::bind(path);
    umask(before);
    listener
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use micss::status::{Status, Streams};

    use super::*;

    #[tokio::test]
    async fn a_socket_is_its_owners_alone() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("x.sock");
        let _listener = listen(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn two_of_one_name_are_told_apart_by_their_sockets() {
        let (streams, channels) = (Streams::default(), Vec::new());
        let status = Status { uptime_s: 0.0, streams, limits: None, interception: None, channels };
        let told = Told::Proxy(Named { name: "office".into(), status });
        let name = |socket: &str| told.clone().named_by(Path::new(socket)).name().to_owned();
        assert_eq!(name("/run/sunder/proxy-office.sock"), "office");
        assert_eq!(name("/run/sunder/proxy-office-42.sock"), "office-42");
        assert_eq!(name("/run/sunder/serve-x.sock"), "office", "another kind's");
    }
}
