//! A virtual machine in which a contained command runs, by QEMU.
//!
//! QEMU runs in the sandbox that a command has without a virtual machine, with the same filter of
//! system calls, so that a fault of QEMU leads into that sandbox. The guest boots Debian's kernel
//! with an init of our own (`init.sh`), sees a read-only base of the system through 9p, and has a
//! network interface for each link of its host. Two serial ports lead out of it: one for what
//! the command prints, and one for [messages](control).

pub(crate) mod control;
mod emulator;
mod files;
mod initramfs;

use std::fs::{self, File};
use std::io;
use std::net::Ipv4Addr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::time::Duration;

use ipnet::Ipv4Net;

use crate::limits::ContainmentLimits;
use crate::upload::UploadOwner;
use crate::workspace::CommandWorkspace;
pub(crate) use emulator::{BASE, EmulatorDescriptors, MACHINE, arguments};
pub use files::MachineFiles;

/// The maximum number of interfaces of a guest.
pub const MAX_GUEST_INTERFACES: usize = 4;

/// The time in which a guest boots. Without hardware virtualization, that takes some seconds of
/// processor time, for which a guest waits on a busy host.
pub const BOOT_TIMEOUT: Duration = Duration::from_secs(180);

/// More processor time than a boot takes on any machine. A guest that has had so much and is not
/// ready has not waited for the host.
pub(crate) const BOOT_PROCESSOR_TIME: Duration = Duration::from_secs(60);

/// The memory that a guest's kernel and its init use, in MiB.
const KERNEL_MIB: u64 = 96;

/// The memory that QEMU uses beside the guest's, in MiB: 64 of them for translated code.
const EMULATOR_MIB: u64 = 256;

/// The threads that QEMU uses, most of them to read files.
const EMULATOR_THREADS: u32 = 256;

/// What a workspace has to hold for a machine beside the command's folder, in MiB.
const BOOT_MIB: u64 = 128;

/// What a guest is given of its host.
#[derive(Debug, Default)]
pub struct GuestMachine {
    /// Its network interfaces beside the loopback interface.
    pub interfaces: Vec<GuestInterface>,
    /// System parameters, by their path relative to `/proc/sys`. The guest does not start if its
    /// kernel refuses one.
    pub parameters: Vec<(String, String)>,
}

/// A network interface of a guest. Its other end is a TAP device, and no address is resolved on the
/// way between them.
#[derive(Debug)]
pub struct GuestInterface {
    /// Its name in the guest.
    pub name: String,
    /// The TAP device.
    pub device: OwnedFd,
    /// The hardware address of both ends.
    pub hardware: [u8; 6],
    /// Its address, with the length of its network's prefix.
    pub address: Ipv4Net,
    /// The MTU, in bytes.
    pub mtu: u32,
    /// Networks to reach through it, in addition to that of its address.
    pub routes: Vec<Ipv4Net>,
}

/// By what a guest's processor is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineProcessor {
    /// By the processor itself (KVM).
    Hardware,
    /// By QEMU's translation, which is slow.
    Translated,
}

impl MachineProcessor {
    /// The one that can be used here.
    pub fn of_this_machine() -> Self {
        // There are kernels that offer KVM without hardware virtualization. They run only kernels
        // that were built for them, and others hang.
        let has = |flag: &str| {
            let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
            let flags = text.lines().find(|line| line.starts_with("flags"));
            flags.is_some_and(|flags| flags.split_whitespace().any(|it| it == flag))
        };
        let opens = || File::options().read(true).write(true).open(KVM).is_ok();
        if (has("vmx") || has("svm")) && opens() { Self::Hardware } else { Self::Translated }
    }

    /// How many of them a guest has.
    ///
    /// One if they are translated: on a busy host, several would wait for each other in the locks
    /// of the guest's kernel.
    fn count(self, limits: &ContainmentLimits) -> u32 {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "it is checked"
        )]
        match self {
            Self::Hardware => limits.processors.ceil().clamp(1.0, 64.0) as u32,
            Self::Translated => 1,
        }
    }

    /// The same in words.
    pub fn describe(self) -> &'static str {
        match self {
            Self::Hardware => "QEMU with KVM",
            Self::Translated => {
                "QEMU without hardware virtualization, which is slow: this host has none"
            }
        }
    }
}

/// The device of KVM.
pub(crate) const KVM: &str = "/dev/kvm";

/// The group that may open KVM's device, if others may not.
pub(crate) fn kvm_group() -> Option<u32> {
    let metadata = fs::metadata(KVM).ok()?;
    let mode = metadata.permissions().mode();
    (mode & 0o060 == 0o060 && mode & 0o006 != 0o006).then_some(metadata.gid())
}

/// What QEMU may use so that the guest has what the command may use.
pub(crate) fn limits_of_emulator(limits: &ContainmentLimits) -> ContainmentLimits {
    ContainmentLimits {
        // The folder is in the guest's memory, and not the command's.
        memory_mib: limits.memory_mib + limits.disk_mib + KERNEL_MIB + EMULATOR_MIB,
        processes: EMULATOR_THREADS,
        disk_mib: limits.disk_mib + BOOT_MIB,
        ..*limits
    }
}

/// The guest's memory in MiB, with a folder of so many bytes.
fn guest_memory_mib(limits: &ContainmentLimits, folder: u64) -> u64 {
    limits.memory_mib + (folder >> 20) + 1 + KERNEL_MIB
}

/// A guest that can be started: its files are in the workspace.
#[derive(Debug)]
pub(crate) struct PreparedMachine {
    pub(crate) processor: MachineProcessor,
    /// The guest's memory, in MiB.
    pub(crate) memory_mib: u64,
    /// The guest's processors.
    pub(crate) processors: u32,
}

impl PreparedMachine {
    /// Writes the kernel and its first files into the workspace, which has the folder already.
    pub(crate) fn new(
        files: &MachineFiles,
        workspace: &CommandWorkspace,
        command: &GuestCommand<'_>,
        limits: &ContainmentLimits,
        owner: Option<UploadOwner>,
    ) -> io::Result<Self> {
        let memory_mib = guest_memory_mib(limits, workspace.used());
        let place = workspace.path("machine");
        fs::create_dir(&place)?;
        let archive = initramfs::archive(files, command, limits)?;
        fs::write(place.join("initramfs"), archive)?;
        fs::copy(&files.kernel, place.join("kernel"))?;
        for name in ["initramfs", "kernel"] {
            give(&place.join(name), owner)?;
        }
        let processor = MachineProcessor::of_this_machine();
        Ok(Self { processor, memory_mib, processors: processor.count(limits) })
    }
}

/// Lets only the user of the sandbox read a file.
fn give(path: &Path, owner: Option<UploadOwner>) -> io::Result<()> {
    fs::set_permissions(path, fs::Permissions::from_mode(0o400))?;
    owner.map_or(Ok(()), |owner| chown(path, Some(owner.user), Some(owner.group)))
}

/// The command of a guest.
#[derive(Debug)]
pub(crate) struct GuestCommand<'a> {
    pub(crate) run: &'a [String],
    /// Its working directory.
    pub(crate) directory: &'a Path,
    pub(crate) machine: &'a GuestMachine,
}

impl GuestInterface {
    /// The hardware address as text.
    fn hardware(&self) -> String {
        self.hardware.map(|byte| format!("{byte:02x}")).join(":")
    }

    /// Its address without the prefix.
    pub fn own_address(&self) -> Ipv4Addr {
        self.address.addr()
    }
}
