//! The program `bwrap` (bubblewrap), which makes the namespaces of a contained command.

use std::ffi::OsString;
use std::fs;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use crate::workspace::{CommandWorkspace, account_files};

/// Where programs of the system are.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];

/// The folder of a command, as it sees it.
pub(crate) const FOLDER: &str = "/folder";

/// Says on standard input, a socket, that the sandbox is ready, waits for an answer, and becomes
/// the command.
const START: &str = "echo >&0; read -r go; exec \"$@\" </dev/null";

/// The files and directories of `/etc` that programs need to find others, beside those about
/// accounts. None of them is private.
const ETC: [&str; 8] = [
    "alternatives",
    "ld.so.cache",
    "localtime",
    "mime.types",
    "protocols",
    "services",
    "ssl/certs",
    "ssl/openssl.cnf",
];

/// The path of `bwrap`, if it is installed.
pub fn find_bubblewrap() -> Option<PathBuf> {
    let paths = DIRECTORIES.iter().map(|directory| Path::new(directory).join("bwrap"));
    paths.into_iter().find(|path| path.is_file())
}

/// Descriptors that `bwrap` is given. It does not pass them on to the command.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SandboxDescriptors {
    /// From which it reads the filter of system calls.
    pub(crate) filter: RawFd,
    /// To which it writes its status.
    pub(crate) status: RawFd,
}

/// The arguments of `bwrap` for a command in a directory of the folder.
pub(crate) fn arguments(
    workspace: &CommandWorkspace,
    directory: &Path,
    command: &[String],
    descriptors: SandboxDescriptors,
) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |words: &[&dyn AsRef<std::ffi::OsStr>]| {
        arguments.extend(words.iter().map(|word| word.as_ref().to_owned()));
    };
    for option in [
        "--unshare-user",
        "--unshare-pid",
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
        "--die-with-parent",
        "--new-session",
        "--clearenv",
    ] {
        add(&[&option]);
    }
    add(&[&"--cap-drop", &"ALL"]);
    add(&[&"--uid", &"1000", &"--gid", &"1000", &"--hostname", &"contained"]);
    for (name, value) in [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
        ("HOME", FOLDER),
        ("USER", "contained"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
    ] {
        add(&[&"--setenv", &name, &value]);
    }
    add(&[&"--ro-bind", &"/usr", &"/usr"]);
    for path in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
        match fs::read_link(path) {
            Ok(target) => add(&[&"--symlink", &target, &path]),
            Err(_) if Path::new(path).is_dir() => add(&[&"--ro-bind", &path, &path]),
            Err(_) => {}
        }
    }
    add(&[&"--proc", &"/proc", &"--dev", &"/dev"]);
    for (name, path) in [("shm", "/dev/shm"), ("tmp", "/tmp"), ("folder", FOLDER)] {
        add(&[&"--bind", &workspace.path(name), &path]);
    }
    add(&[&"--dir", &"/etc"]);
    for name in account_files() {
        add(&[&"--ro-bind", &workspace.path("etc").join(name), &Path::new("/etc").join(name)]);
    }
    for name in ETC {
        let path = Path::new("/etc").join(name);
        add(&[&"--ro-bind-try", &path, &path]);
    }
    add(&[&"--remount-ro", &"/dev", &"--remount-ro", &"/"]);
    add(&[&"--chdir", &directory]);
    let SandboxDescriptors { filter, status } = descriptors;
    add(&[&"--seccomp", &filter.to_string(), &"--json-status-fd", &status.to_string()]);
    add(&[&"--", &"/bin/sh", &"-c", &START, &"sh"]);
    for word in command {
        add(&[word]);
    }
    arguments
}
