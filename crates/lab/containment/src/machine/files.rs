//! What a virtual machine needs of the host: QEMU, a kernel with its modules, and busybox.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The modules that a guest loads: its devices, its files, and congestion control beside CUBIC.
const MODULES: [&str; 6] =
    ["virtio_pci", "virtio_console", "virtio_net", "9pnet_virtio", "9p", "tcp_bbr"];

/// Where a kernel is, and where its modules are.
const BOOT: &str = "/boot";
const LIBRARIES: &str = "/lib/modules";

const EMULATOR: &str = "/usr/bin/qemu-system-x86_64";
const BUSYBOX: &str = "/bin/busybox";
/// With which the guest's init gives up its rights.
const SETPRIV: &str = "/usr/bin/setpriv";

/// The program, the kernel and the other files of virtual machines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineFiles {
    /// QEMU.
    pub emulator: PathBuf,
    /// The kernel.
    pub kernel: PathBuf,
    /// The kernel's modules, in the order in which they are loaded.
    pub modules: Vec<PathBuf>,
    /// A statically linked busybox.
    pub busybox: PathBuf,
}

impl MachineFiles {
    /// Finds them.
    ///
    /// # Errors
    /// Says in one line what is missing, and how to install it.
    pub fn find() -> Result<Self, String> {
        if !cfg!(target_arch = "x86_64") {
            return Err("virtual machines are there for x86-64 only".into());
        }
        let kernel = find_kernel(Path::new(BOOT), Path::new(LIBRARIES));
        let missing: Vec<&str> = [
            (Path::new(EMULATOR).is_file(), "qemu-system-x86"),
            (Path::new(BUSYBOX).is_file_without_libraries(), "busybox-static"),
            (Path::new(SETPRIV).is_file(), "util-linux"),
            (kernel.is_some(), "linux-image-amd64"),
        ]
        .into_iter()
        .filter_map(|(is_there, package)| (!is_there).then_some(package))
        .collect();
        let (true, Some((kernel, modules))) = (missing.is_empty(), kernel) else {
            let missing = missing.join(" ");
            return Err(format!(
                "a virtual machine needs what is not installed here (Debian: apt install {missing}; \
                 kernels for clouds have no 9p)"
            ));
        };
        Ok(Self { emulator: EMULATOR.into(), kernel, modules, busybox: BUSYBOX.into() })
    }
}

/// Whether a program runs without libraries.
trait StaticProgram {
    fn is_file_without_libraries(&self) -> bool;
}

impl StaticProgram for Path {
    fn is_file_without_libraries(&self) -> bool {
        // A dynamic program names its loader.
        let has_loader = |bytes: &[u8]| bytes.windows(11).any(|it| it == b"/ld-linux-x");
        fs::read(self).is_ok_and(|bytes| !has_loader(&bytes[..bytes.len().min(1 << 14)]))
    }
}

/// The newest kernel with all modules, and the files of these.
fn find_kernel(boot: &Path, libraries: &Path) -> Option<(PathBuf, Vec<PathBuf>)> {
    let entries = fs::read_dir(boot).ok()?.flatten();
    let version = |name: String| Some(name.strip_prefix("vmlinuz-")?.to_owned());
    let mut versions: Vec<String> =
        entries.filter_map(|it| version(it.file_name().into_string().ok()?)).collect();
    versions.sort_by_key(|version| numbers(version));
    versions.iter().rev().find_map(|version| {
        let kernel = boot.join(format!("vmlinuz-{version}"));
        let modules = modules(&libraries.join(version))?;
        fs::File::open(&kernel).is_ok().then_some((kernel, modules))
    })
}

/// The numbers in a version, by which versions are ordered.
fn numbers(version: &str) -> Vec<u64> {
    let numbers = version.split(|c: char| !c.is_ascii_digit());
    numbers.filter_map(|number| number.parse().ok()).collect()
}

/// The files of the modules of a kernel, each after those that it needs. A module that is part of
/// the kernel has none.
fn modules(directory: &Path) -> Option<Vec<PathBuf>> {
    let read = |name: &str| fs::read_to_string(directory.join(name)).ok();
    let (needs, built_in) = (read("modules.dep")?, read("modules.builtin").unwrap_or_default());
    let mut listed = BTreeSet::new();
    let mut files = Vec::new();
    for name in MODULES {
        if built_in.lines().any(|line| is_module(line, name)) {
            continue;
        }
        let line = needs.lines().find(|line| is_module(line.split(':').next().unwrap(), name))?;
        let (own, needed) = line.split_once(':')?;
        // The last one that is named needs no other.
        for file in needed.split_whitespace().rev().chain([own]) {
            if listed.insert(file.to_owned()) {
                files.push(directory.join(file));
            }
        }
    }
    Some(files)
}

/// Whether a path is that of a module, compressed or not.
fn is_module(path: &str, name: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    file.strip_prefix(name).is_some_and(|rest| rest.starts_with(".ko"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: &str = "kernel/net/9p/9pnet.ko:
kernel/net/9p/9pnet_virtio.ko.xz: kernel/net/9p/9pnet.ko kernel/drivers/virtio/virtio.ko
kernel/fs/9p/9p.ko: kernel/net/9p/9pnet.ko kernel/fs/netfs.ko
kernel/drivers/virtio/virtio.ko:
kernel/drivers/net/virtio_net.ko: kernel/net/failover.ko kernel/drivers/virtio/virtio.ko
";

    #[test]
    fn the_newest_kernel_that_has_all_modules_is_taken() {
        let place = tempfile::tempdir().unwrap();
        let libraries = place.path().join("modules");
        for (version, needs) in [("6.1.0-9", NEEDS), ("6.1.0-10", NEEDS), ("6.2.0-cloud", "")] {
            fs::write(place.path().join(format!("vmlinuz-{version}")), "").unwrap();
            let directory = libraries.join(version);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("modules.dep"), needs).unwrap();
            let built_in = "kernel/drivers/virtio/virtio_pci.ko\nkernel/char/virtio_console.ko\n\
                            kernel/net/tcp_bbr.ko\n";
            fs::write(directory.join("modules.builtin"), built_in).unwrap();
        }
        let (kernel, modules) = find_kernel(place.path(), &libraries).unwrap();
        assert_eq!(kernel.file_name().unwrap(), "vmlinuz-6.1.0-10");
        let names: Vec<_> = modules.iter().map(|it| it.file_name().unwrap()).collect();
        let expected = ["virtio.ko", "failover.ko", "virtio_net.ko", "9pnet.ko"];
        assert_eq!(names[..4], expected);
        assert_eq!(names[4..], ["9pnet_virtio.ko.xz", "netfs.ko", "9p.ko"]);
    }
}
