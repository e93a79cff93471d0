//! What this host supports.

use std::fs::{self, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use micss::intercept::{self, InterceptConfig};
use random::RandomGenerator;
use service::limits::OpenFileBudget;
use service::memory::MemoryLockError;
use sharing::kernels::FieldKernel;

use super::finding::{CheckFinding, FindingSeverity};
use super::{links, read};

/// The descriptors of a proxy with three channels and the default settings.
const TYPICAL_PROXY_FILES: OpenFileBudget =
    OpenFileBudget { streams: 4096, files_per_stream: 4, waiting: 192 };

/// How to give a process a right.
const CAPABILITY_FIX: &str =
    "run it as root, or with the systemd units, which grant only this right";

/// How to let a process lock its memory.
pub(crate) const LOCKED_MEMORY_FIX: &str = "raise the limit (LimitMEMLOCK=infinity in a systemd \
                                            unit, or ulimit -Hl), or use no swap or encrypted swap";

/// The findings about this host without a configuration.
pub(crate) fn findings() -> Vec<CheckFinding> {
    let rights = ProcessCapabilities::of_this_process();
    let matching = "tcp dport 80".parse().expect("a comparison");
    let mut findings = vec![
        network_devices(rights, FindingSeverity::Note),
        tun_device(FindingSeverity::Note),
        low_ports(rights, &read("/proc/sys/net/ipv4/ip_unprivileged_port_start")),
        interception(
            &InterceptConfig::new(matching, 522, Vec::new()),
            rights,
            FindingSeverity::Note,
        ),
        open_files(
            TYPICAL_PROXY_FILES.streams,
            TYPICAL_PROXY_FILES.raise_limit_and_fit().streams,
            TYPICAL_PROXY_FILES.files_per_stream - 1,
        ),
        random(),
        vectors(FieldKernel::best()),
    ];
    #[cfg(feature = "lab")]
    findings.extend([containment(), virtual_machines()]);
    findings.extend(leftover_rules());
    findings.extend(links::findings());
    findings.push(status_directory());
    findings
}

/// Whether the laboratory can contain scripts.
#[cfg(feature = "lab")]
fn containment() -> CheckFinding {
    let subject = "containment";
    match containment::find_bubblewrap() {
        Some(path) => CheckFinding::ok(subject, format!("{} is there", path.display())),
        None => CheckFinding::new(
            FindingSeverity::Note,
            subject,
            "bwrap is missing, with which sunder lab contains scripts",
            "install it (Debian: apt install bubblewrap)",
        ),
    }
}

/// Whether the laboratory can run scripts in virtual machines.
#[cfg(feature = "lab")]
fn virtual_machines() -> CheckFinding {
    let subject = "virtual machines";
    if let Err(missing) = containment::MachineFiles::find() {
        let fix = "only scripts with contain = \"vm\" need it";
        return CheckFinding::new(FindingSeverity::Note, subject, missing, fix);
    }
    let processor = containment::MachineProcessor::of_this_machine();
    if processor == containment::MachineProcessor::Hardware {
        return CheckFinding::ok(subject, processor.describe());
    }
    let fix = "enable virtualization in the firmware or, in a virtual machine, nested \
               virtualization, and let this user open /dev/kvm";
    CheckFinding::new(FindingSeverity::Note, subject, processor.describe(), fix)
}

/// The rights of a process beyond those of every user: its effective capabilities.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessCapabilities(u64);

impl ProcessCapabilities {
    /// `CAP_NET_BIND_SERVICE`.
    const LOW_PORTS: u32 = 10;
    /// `CAP_NET_ADMIN`.
    const NETWORK: u32 = 12;

    /// The rights of this process. None if the kernel does not report them.
    pub(crate) fn of_this_process() -> Self {
        Self::parse(&read("/proc/self/status"))
    }

    /// The rights in the text of a process's `status` file.
    fn parse(status: &str) -> Self {
        let set = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        Self(set.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0))
    }

    fn has(self, capability: u32) -> bool {
        self.0 >> capability & 1 == 1
    }
}

/// Whether this process may create network devices.
pub(crate) fn network_devices(rights: ProcessCapabilities, lack: FindingSeverity) -> CheckFinding {
    let subject = "network devices";
    if rights.has(ProcessCapabilities::NETWORK) {
        return CheckFinding::ok(subject, "this process may create them (CAP_NET_ADMIN)");
    }
    let what = "this process may not create them, which a tunnel requires (CAP_NET_ADMIN)";
    CheckFinding::new(lack, subject, what, CAPABILITY_FIX)
}

/// Whether this process can use TUN devices.
pub(crate) fn tun_device(lack: FindingSeverity) -> CheckFinding {
    let path = "/dev/net/tun";
    // Opening it creates no device yet.
    opened_tun(OpenOptions::new().read(true).write(true).open(path).map(drop), lack)
}

fn opened_tun(opened: io::Result<()>, lack: FindingSeverity) -> CheckFinding {
    let subject = "/dev/net/tun";
    match opened {
        Ok(()) => CheckFinding::ok(subject, "can be opened"),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            let what = "this process may not open it, which a tunnel requires";
            let fix = "run it as root, or chmod 666 /dev/net/tun, the mode on most systems";
            CheckFinding::new(lack, subject, what, fix)
        }
        Err(error) => {
            let fix = "modprobe tun; in a container, pass the device to it";
            CheckFinding::new(lack, subject, format!("cannot be opened: {error}"), fix)
        }
    }
}

/// Whether this process may listen on privileged ports. `first` is the kernel's setting: the first
/// port that every process may use.
fn low_ports(rights: ProcessCapabilities, first: &str) -> CheckFinding {
    let (subject, first) = ("low ports", first.trim().parse().unwrap_or(1024));
    if rights.has(ProcessCapabilities::LOW_PORTS) || first <= 1 {
        return CheckFinding::ok(subject, "this process may listen on any port");
    }
    let what = format!("this process may only listen on ports from {first} up");
    let fix = format!("for a lower one it needs CAP_NET_BIND_SERVICE: {CAPABILITY_FIX}");
    CheckFinding::new(FindingSeverity::Note, subject, what, fix)
}

/// Whether these connections can be intercepted.
pub(crate) fn interception(
    intercept: &InterceptConfig,
    rights: ProcessCapabilities,
    lack: FindingSeverity,
) -> CheckFinding {
    let subject = "interception";
    if !rights.has(ProcessCapabilities::NETWORK) {
        let what = "this process may not set its rules (CAP_NET_ADMIN)";
        return CheckFinding::new(lack, subject, what, CAPABILITY_FIX);
    }
    match intercept.check() {
        Ok(()) => CheckFinding::ok(subject, "nft accepts its rules"),
        Err(error) => {
            let fix = "sunder proxy --print-rules shows the rules; the kernel needs nft's redir, tproxy, fib and ct";
            CheckFinding::new(lack, subject, error.to_string(), fix)
        }
    }
}

/// The rules of proxies that no longer run, which refuse connections.
pub(crate) fn leftover_rules() -> Vec<CheckFinding> {
    let finding = |table: String| {
        let what = format!(
            "a proxy that was killed or could not start has left the rules of table {table}: \
             connections that match them are refused"
        );
        let fix = format!("start it again, or: nft delete table inet {table}");
        CheckFinding::new(FindingSeverity::Error, "interception", what, fix)
    };
    intercept::leftover_tables().into_iter().map(finding).collect()
}

/// Whether the limit of open files is enough for the wanted number of streams. If not, the finding
/// states how many are possible.
pub(crate) fn open_files(wanted: usize, possible: usize, channels: usize) -> CheckFinding {
    let subject = "open files";
    if possible >= wanted {
        return CheckFinding::ok(
            subject,
            format!("enough for {wanted} streams over {channels} channels"),
        );
    }
    let what = format!("enough for {possible} streams over {channels} channels, not for {wanted}");
    let fix =
        "raise the limit (LimitNOFILE= in a systemd unit, or ulimit -Hn), or lower max_streams";
    CheckFinding::new(FindingSeverity::Warning, subject, what, fix)
}

/// Whether a process can keep its memory out of swap.
pub(crate) fn locked_memory(locked: Result<(), MemoryLockError>) -> CheckFinding {
    let subject = "memory";
    match locked {
        Ok(()) => CheckFinding::ok(subject, "it can be locked, so that it is not written to swap"),
        Err(error) => {
            let what =
                format!("this process cannot lock it, so it can be written to swap: {error}");
            CheckFinding::new(FindingSeverity::Warning, subject, what, LOCKED_MEMORY_FIX)
        }
    }
}

/// Whether the system provides random bytes, on which all secrecy depends.
pub(crate) fn random() -> CheckFinding {
    match RandomGenerator::system().array::<32>() {
        Ok(_) => CheckFinding::ok("random source", "the system provides random bytes"),
        Err(error) => {
            let fix = "allow the system call getrandom, or run on a system that has it";
            CheckFinding::new(FindingSeverity::Error, "random source", error.to_string(), fix)
        }
    }
}

/// Which vector instructions of the processor compute the shares.
fn vectors(kernel: FieldKernel) -> CheckFinding {
    let subject = "processor";
    if kernel == FieldKernel::Portable {
        let what = "it has no vector instructions that Sunder supports, so computing shares takes \
                    many times as long";
        return CheckFinding::new(
            FindingSeverity::Note,
            subject,
            what,
            "one with AVX2, GFNI or NEON is faster",
        );
    }
    CheckFinding::ok(subject, format!("shares are computed with {kernel}"))
}

/// Whether `sunder status` can find the daemons of this host.
fn status_directory() -> CheckFinding {
    let Some(directory) = service::status::directory() else {
        let fix = "set RUNTIME_DIRECTORY to a directory that you own, for the daemons and for \
                   `sunder status`";
        let what = "there is none, so `sunder status` cannot find any daemon";
        return CheckFinding::new(FindingSeverity::Note, "status directory", what, fix);
    };
    // A directory that systemd created may contain several.
    status_at(&directory, fs::metadata(&directory))
}

fn status_at(directory: &Path, found: io::Result<Metadata>) -> CheckFinding {
    let (subject, shown) = ("status directory", directory.display());
    match found {
        Ok(found) if !found.is_dir() => {
            let fix = format!("remove it: rm {shown}");
            CheckFinding::new(
                FindingSeverity::Error,
                subject,
                format!("{shown} is not a directory"),
                fix,
            )
        }
        Ok(found) if found.permissions().mode() & 0o002 != 0 => {
            let what = format!("every user of this host can create files in {shown}");
            CheckFinding::new(FindingSeverity::Warning, subject, what, format!("chmod o-w {shown}"))
        }
        Ok(_) => CheckFinding::ok(subject, shown.to_string()),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            CheckFinding::ok(subject, format!("{shown}, created by the first daemon that uses it"))
        }
        Err(error) => {
            let fix = "run this as the user that runs the daemons";
            CheckFinding::new(FindingSeverity::Warning, subject, format!("{shown}: {error}"), fix)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: ProcessCapabilities = ProcessCapabilities(u64::MAX);
    const NONE: ProcessCapabilities = ProcessCapabilities(0);

    #[test]
    fn capabilities_are_parsed_from_proc_status() {
        let parse = |set: &str| {
            ProcessCapabilities::parse(&format!("Name:\tx\nCapPrm:\tff\nCapEff:\t{set}\n"))
        };
        assert!(!parse("0000000000000000").has(ProcessCapabilities::NETWORK));
        assert!(parse("0000000000001000").has(ProcessCapabilities::NETWORK));
        assert!(!parse("0000000000001000").has(ProcessCapabilities::LOW_PORTS));
        assert!(parse("000001ffffffffff").has(ProcessCapabilities::LOW_PORTS));
        assert_eq!(ProcessCapabilities::parse(""), NONE);
    }

    #[test]
    fn a_missing_right_has_the_given_severity() {
        assert_eq!(network_devices(ALL, FindingSeverity::Error).level, FindingSeverity::Ok);
        assert_eq!(network_devices(NONE, FindingSeverity::Error).level, FindingSeverity::Error);
        assert_eq!(network_devices(NONE, FindingSeverity::Note).level, FindingSeverity::Note);
        let denied = opened_tun(Err(ErrorKind::PermissionDenied.into()), FindingSeverity::Error);
        assert!(
            denied.level == FindingSeverity::Error && denied.fix.unwrap().contains("chmod 666")
        );
        let missing = opened_tun(Err(ErrorKind::NotFound.into()), FindingSeverity::Note);
        assert!(
            missing.level == FindingSeverity::Note && missing.fix.unwrap().contains("modprobe tun")
        );
        assert_eq!(opened_tun(Ok(()), FindingSeverity::Error).level, FindingSeverity::Ok);
    }

    #[test]
    fn low_ports_are_those_below_the_kernels_first() {
        assert_eq!(low_ports(ALL, "1024\n").level, FindingSeverity::Ok);
        assert_eq!(low_ports(NONE, "0\n").level, FindingSeverity::Ok);
        let some = low_ports(NONE, "80\n");
        assert!(
            some.level == FindingSeverity::Note && some.message.ends_with("from 80 up"),
            "{some:?}"
        );
        assert!(low_ports(NONE, "").message.ends_with("from 1024 up"));
    }

    #[test]
    fn a_low_open_file_limit_is_reported_in_streams() {
        let fine = open_files(1000, 1000, 3);
        assert_eq!(fine, CheckFinding::ok("open files", "enough for 1000 streams over 3 channels"));
        let few = open_files(1000, 17, 3);
        assert_eq!(few.level, FindingSeverity::Warning);
        assert_eq!(few.message, "enough for 17 streams over 3 channels, not for 1000");
    }

    #[test]
    fn unlocked_memory_is_a_warning() {
        assert_eq!(locked_memory(Ok(())).level, FindingSeverity::Ok);
        let limited = locked_memory(Err(MemoryLockError::Limited(8 << 20)));
        assert!(limited.level == FindingSeverity::Warning && limited.message.contains("8192 KiB"));
    }

    #[test]
    fn the_processor_is_named() {
        assert_eq!(vectors(FieldKernel::Portable).level, FindingSeverity::Note);
        assert_eq!(random().level, FindingSeverity::Ok);
    }

    #[test]
    fn a_world_writable_status_directory_is_a_warning() {
        let place = tempfile::tempdir().unwrap();
        let level = |path: &Path| status_at(path, fs::metadata(path)).level;
        for (mode, expected) in [
            (0o755, FindingSeverity::Ok),
            (0o700, FindingSeverity::Ok),
            (0o777, FindingSeverity::Warning),
        ] {
            fs::set_permissions(place.path(), fs::Permissions::from_mode(mode)).unwrap();
            assert_eq!(level(place.path()), expected, "{mode:o}");
        }
        let file = place.path().join("file");
        assert_eq!(level(&file), FindingSeverity::Ok, "it is made");
        fs::write(&file, "").unwrap();
        assert_eq!(level(&file), FindingSeverity::Error);
    }
}
