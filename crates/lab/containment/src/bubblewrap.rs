//! The program `bwrap` (bubblewrap), which makes the namespaces of a contained command.

use std::ffi::OsString;
use std::fs;
use std::os::fd::RawFd;
use std::path::{Path, PathBuf};

use crate::machine::{BASE, KVM, MACHINE, MachineProcessor};
use crate::workspace::{CommandWorkspace, account_files};

/// Where programs of the system are.
const DIRECTORIES: [&str; 4] = ["/usr/bin", "/bin", "/usr/local/bin", "/run/current-system/sw/bin"];

/// The folder of a command, as it sees it.
pub(crate) const FOLDER: &str = "/folder";

/// The program of the host that a command is given, as it sees it.
const PROGRAM: &str = "/dev/shm/sunder";

/// The same for the init of a virtual machine.
const PROGRAM_IN_BASE: &str = "tmp/sunder";

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

/// What a sandbox shows of the host, beside the base of the system.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SandboxView<'a> {
    /// The command's folder, and the directory in it in which the command runs.
    Folder(&'a Path),
    /// The files of a virtual machine, which is run by such a processor.
    Machine(MachineProcessor),
}

/// The arguments of `bwrap` for a command.
pub(crate) fn arguments(
    workspace: &CommandWorkspace,
    view: SandboxView<'_>,
    command: &[String],
    descriptors: SandboxDescriptors,
) -> Vec<OsString> {
    let mut arguments = BubblewrapArguments::default();
    let program = workspace.path("program");
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
        arguments.add(&[&option]);
    }
    arguments.add(&[&"--cap-drop", &"ALL"]);
    arguments.add(&[&"--uid", &"1000", &"--gid", &"1000", &"--hostname", &"contained"]);
    for (name, value) in [
        ("PATH", "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"),
        ("HOME", FOLDER),
        ("USER", "contained"),
        ("LANG", "C.UTF-8"),
        ("TMPDIR", "/tmp"),
    ] {
        arguments.add(&[&"--setenv", &name, &value]);
    }
    arguments.add_base("");
    arguments.add(&[&"--proc", &"/proc", &"--dev", &"/dev"]);
    match view {
        SandboxView::Folder(directory) => {
            for (name, path) in [("shm", "/dev/shm"), ("tmp", "/tmp"), ("folder", FOLDER)] {
                arguments.add(&[&"--bind", &workspace.path(name), &path]);
            }
            arguments.add(&[&"--ro-bind-try", &program, &PROGRAM]);
            arguments.add_etc("", workspace);
            arguments.add(&[&"--remount-ro", &"/dev", &"--remount-ro", &"/"]);
            arguments.add(&[&"--chdir", &directory]);
        }
        SandboxView::Machine(processor) => {
            arguments.add_etc("", workspace);
            for name in ["kernel", "initramfs"] {
                let [from, to] = [&workspace.path("machine"), Path::new(MACHINE)];
                arguments.add(&[&"--ro-bind", &from.join(name), &to.join(name)]);
            }
            arguments.add_base(BASE);
            arguments.add_etc(BASE, workspace);
            for name in ["proc", "dev", "tmp"] {
                arguments.add(&[&"--dir", &Path::new(BASE).join(name)]);
            }
            let in_base = Path::new(BASE).join(PROGRAM_IN_BASE);
            arguments.add(&[&"--ro-bind-try", &program, &in_base]);
            let folder = format!("{BASE}{FOLDER}");
            arguments.add(&[&"--ro-bind", &workspace.path("folder"), &folder]);
            if processor == MachineProcessor::Hardware {
                arguments.add(&[&"--dev-bind", &KVM, &KVM]);
            }
            arguments.add(&[&"--remount-ro", &"/dev", &"--remount-ro", &"/", &"--chdir", &"/"]);
        }
    }
    let SandboxDescriptors { filter, status } = descriptors;
    arguments.add(&[&"--seccomp", &filter.to_string(), &"--json-status-fd", &status.to_string()]);
    arguments.add(&[&"--", &"/bin/sh", &"-c", &START, &"sh"]);
    for word in command {
        arguments.add(&[word]);
    }
    arguments.0
}

/// Arguments of `bwrap`.
#[derive(Debug, Default)]
struct BubblewrapArguments(Vec<OsString>);

impl BubblewrapArguments {
    fn add(&mut self, words: &[&dyn AsRef<std::ffi::OsStr>]) {
        self.0.extend(words.iter().map(|word| word.as_ref().to_owned()));
    }

    /// Shows the programs and libraries of the system below a directory.
    fn add_base(&mut self, below: &str) {
        let at = |path: &str| format!("{below}{path}");
        self.add(&[&"--ro-bind", &"/usr", &at("/usr")]);
        for path in ["/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"] {
            match fs::read_link(path) {
                Ok(target) => self.add(&[&"--symlink", &target, &at(path)]),
                Err(_) if Path::new(path).is_dir() => self.add(&[&"--ro-bind", &path, &at(path)]),
                Err(_) => {}
            }
        }
    }

    /// Shows what programs need of `/etc` below a directory.
    fn add_etc(&mut self, below: &str, workspace: &CommandWorkspace) {
        let etc = format!("{below}/etc");
        self.add(&[&"--dir", &etc]);
        for name in account_files() {
            let at = Path::new(&etc).join(name);
            self.add(&[&"--ro-bind", &workspace.path("etc").join(name), &at]);
        }
        for name in ETC {
            let at = Path::new(&etc).join(name);
            self.add(&[&"--ro-bind-try", &Path::new("/etc").join(name), &at]);
        }
    }
}
