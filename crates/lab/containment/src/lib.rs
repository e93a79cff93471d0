//! Programs of strangers in a sandbox, with limits.
//!
//! A [`ContainedProcess`] runs a command in the folder that a stranger has uploaded:
//!
//! - It sees a read-only base of the system (`/usr`, and a few files of `/etc`), a writable copy of
//!   the folder, the program that it is given, and no other file.
//! - It has its own processes, and the network of one namespace that the caller chooses.
//! - It has no capability, and the kernel answers only system calls of an allow list.
//! - When it reaches one of its [`ContainmentLimits`], all its processes are killed, and the end
//!   says which [limit](ContainmentLimit) that was.
//! - With a [`GuestMachine`] it runs in a virtual machine in that sandbox, with its own kernel.
//! - When it has ended, no process, mount, control group or file of it remains.
//!
//! Faults of the kernel, of the processor and of `bwrap` are outside these promises. With a virtual
//! machine, a command also has to use a fault of QEMU first, or one of KVM.
//!
//! The caller needs `CAP_SYS_ADMIN` in its user namespace, as root has and as the laboratory's
//! sandbox gives.
//!
//! An [`UploadedFolder`] is a directory or an archive. It is read within
//! [bounds](UploadBounds), and nothing in it leads outside the copy:
//!
//! ```
//! use std::fs;
//! use std::os::unix::fs::symlink;
//!
//! use sunder_containment::{UploadBounds, UploadedFolder};
//!
//! let place = tempfile::tempdir()?;
//! let [from, to] = ["from", "to"].map(|name| place.path().join(name));
//! fs::create_dir(&from)?;
//! fs::create_dir(&to)?;
//! fs::write(from.join("page"), "a page\n")?;
//! UploadedFolder::open(&from)?.unpack(&to, &UploadBounds::default())?;
//! assert_eq!(fs::read_to_string(to.join("page"))?, "a page\n");
//!
//! symlink("/etc/shadow", from.join("link"))?;
//! let refused = UploadedFolder::open(&from)?.names(&UploadBounds::default()).unwrap_err();
//! assert!(refused.to_string().contains("link: leads to /etc/shadow"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Map
//!
//! - `process`: [`ContainedProcess`], started from a [`ContainedCommand`] (`command`).
//!   `supervisor`: the thread that has the namespaces of a process, starts it and enforces its
//!   limits. `bubblewrap`: the program `bwrap` and its arguments. `workspace`: the files that a
//!   process can write. `filter`: its system calls. `cgroup` limits it where control groups can be
//!   made, `watchdog` elsewhere.
//! - `machine`: the virtual machine of a process. `files`: what it needs of the host. `initramfs`
//!   and `init.sh`: what its guest starts with. `emulator`: the arguments of QEMU. `control`: the
//!   messages of a guest, pure. Its part of the supervisor is `supervisor::guest`.
//! - `limits`: [`ContainmentLimits`].
//! - `upload`: [`UploadedFolder`]. `path`: which paths stay in it, pure. `archive` and `tree` read
//!   archives and directories, `copy` writes.

#![allow(clippy::cast_precision_loss, reason = "limits are far below 2^52")]

mod bubblewrap;
mod cgroup;
mod command;
mod filter;
mod limits;
mod machine;
mod process;
mod supervisor;
mod upload;
mod watchdog;
mod workspace;

pub use bubblewrap::find_bubblewrap;
pub use command::{ContainedCommand, ContainedEnd, ContainedExit, ContainmentError};
pub use limits::{ContainmentLimit, ContainmentLimits};
pub use machine::{
    BOOT_TIMEOUT, GuestInterface, GuestMachine, MAX_GUEST_INTERFACES, MachineFiles,
    MachineProcessor,
};
pub use process::ContainedProcess;
pub use upload::{UploadBounds, UploadError, UploadedFolder};
