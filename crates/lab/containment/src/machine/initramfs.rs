//! The first files of a guest: an archive that its kernel unpacks into memory.

use std::fs;
use std::io;

use super::{GuestCommand, MachineFiles};
use crate::limits::ContainmentLimits;

/// The first program of a guest.
const INIT: &str = include_str!("init.sh");

/// A directory, and a file that everyone may execute, as in `stat`.
const DIRECTORY: u32 = 0o040_755;
const EXECUTABLE: u32 = 0o100_755;
const READABLE: u32 = 0o100_644;

/// The archive for a command.
pub(super) fn archive(
    files: &MachineFiles,
    command: &GuestCommand<'_>,
    limits: &ContainmentLimits,
) -> io::Result<Vec<u8>> {
    let mut archive = InitramfsArchive::default();
    for name in ["dev", "proc", "sys", "modules", "base", "space", "bin"] {
        archive.add(name, DIRECTORY, &[]);
    }
    archive.add("bin/busybox", EXECUTABLE, &fs::read(&files.busybox)?);
    archive.add("init", EXECUTABLE, INIT.as_bytes());
    for (i, file) in files.modules.iter().enumerate() {
        let name = file.file_name().unwrap_or_default().to_string_lossy();
        archive.add(&format!("modules/{i:02}-{name}"), READABLE, &fs::read(file)?);
    }
    archive.add("settings.sh", READABLE, settings(command, limits).as_bytes());
    Ok(archive.finish())
}

/// What the init reads: commands of the shell.
fn settings(command: &GuestCommand<'_>, limits: &ContainmentLimits) -> String {
    let mut lines = vec![
        format!("memory={}", limits.memory_mib << 20),
        format!("processes={}", limits.processes),
        format!("disk='size={}m,nr_inodes={}'", limits.disk_mib, limits.files),
        format!("directory={}", quoted(&command.directory.to_string_lossy())),
        "set_up_network() {".into(),
        ":".into(),
    ];
    for interface in &command.machine.interfaces {
        let (name, hardware) = (quoted(&interface.name), interface.hardware());
        lines.push(format!("interface {hardware} {name} {} {}", interface.mtu, interface.address));
        let routes = interface.routes.iter();
        lines.extend(routes.map(|network| format!("route {network} {name}")));
    }
    for (path, value) in &command.machine.parameters {
        lines.push(format!("parameter {} {}", quoted(path), quoted(value)));
    }
    lines.push("}".into());
    let words: Vec<String> = command.run.iter().map(|word| quoted(word)).collect();
    lines.push(format!("set -- {}", words.join(" ")));
    lines.join("\n") + "\n"
}

/// A word of the shell.
fn quoted(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

/// An archive as Linux unpacks it (cpio, "newc").
#[derive(Debug, Default)]
struct InitramfsArchive {
    bytes: Vec<u8>,
    files: u32,
}

impl InitramfsArchive {
    fn add(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.files += 1;
        let length = u32::try_from(content.len()).expect("files of a guest are small");
        let name_length = u32::try_from(name.len() + 1).expect("names are short");
        // Number, mode, user, group, links, time, length, four numbers of devices, the name's
        // length and a checksum that is not used.
        let fields = [self.files, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        self.bytes.extend(b"070701");
        self.bytes.extend(fields.iter().flat_map(|field| format!("{field:08x}").into_bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.align();
        self.bytes.extend(content);
        self.align();
    }

    fn align(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.add("TRAILER!!!", 0, &[]);
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_quoted_for_the_shell() {
        assert_eq!(quoted("a b"), "'a b'");
        assert_eq!(quoted("it's $(x)"), r"'it'\''s $(x)'");
    }

    #[test]
    fn entries_begin_at_multiples_of_four() {
        let mut archive = InitramfsArchive::default();
        archive.add("init", EXECUTABLE, b"hello");
        let bytes = archive.finish();
        assert!(bytes.len().is_multiple_of(4));
        let text = String::from_utf8_lossy(&bytes);
        assert!(text.starts_with("070701"), "{text}");
        assert_eq!(text[14..22], *"000081ed");
        assert_eq!(text[54..62], *"00000005");
        assert!(text.contains("init\0\0hello\0\0\x00070701") && text.contains("TRAILER!!!\0"));
    }
}
