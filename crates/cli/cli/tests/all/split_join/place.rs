//! Runs the real command in a directory of its own.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// A directory that is removed in the end.
pub(crate) struct TestDirectory(TempDir);

impl TestDirectory {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.path(name), bytes).unwrap();
    }

    pub(crate) fn read(&self, name: &str) -> Vec<u8> {
        fs::read(self.path(name)).unwrap()
    }

    /// The names of what is there, in order.
    pub(crate) fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// `sunder` with these arguments, to be run here.
    pub(crate) fn command<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(arguments).current_dir(self.0.path()).stdin(Stdio::null());
        command
    }

    /// Runs `sunder` with these arguments, separated by spaces.
    pub(crate) fn run(&self, arguments: &str) -> Output {
        self.command(arguments.split_whitespace()).output().unwrap()
    }

    /// Runs `sunder`, which must succeed without a word on standard error.
    pub(crate) fn succeed(&self, arguments: &str) -> Output {
        let output = self.run(arguments);
        assert_eq!(stderr(&output), "", "{arguments}");
        assert_eq!(output.status.code(), Some(0), "{arguments}");
        output
    }

    /// Runs `sunder`, which must fail with this code and leave the directory as it was; returns
    /// the one line that it says.
    pub(crate) fn fail(&self, code: i32, arguments: &str) -> String {
        let before = self.names();
        let output = self.run(arguments);
        assert_eq!(self.names(), before, "{arguments}: something was left behind");
        assert!(output.stdout.is_empty(), "{arguments}");
        error_line(&output, code)
    }

    /// Puts `secret` here and splits it.
    pub(crate) fn split(&self, options: &str, secret: &[u8]) {
        self.write("secret", secret);
        self.succeed(&format!("split {options} secret"));
        fs::remove_file(self.path("secret")).unwrap();
    }

    /// Changes a file.
    pub(crate) fn edit(&self, name: &str, change: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.read(name);
        change(&mut bytes);
        self.write(name, &bytes);
    }
}

/// The one line on standard error of a run that failed with this code.
pub(crate) fn error_line(output: &Output, code: i32) -> String {
    let message = stderr(output);
    assert_eq!(output.status.code(), Some(code), "{message}");
    let lines: Vec<&str> = message.lines().collect();
    assert!(matches!(lines[..], [line] if line.starts_with("error: ")), "{message}");
    message
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// `len` bytes that are not all alike.
pub(crate) fn bytes(len: usize) -> Vec<u8> {
    (0..=250).cycle().take(len).collect()
}

/// The shares of what [`TestDirectory::split`] split, as arguments.
pub(crate) fn share_names(coordinates: impl IntoIterator<Item = u8>) -> String {
    let names = coordinates.into_iter().map(|x| format!("secret.{x}.share"));
    names.collect::<Vec<_>>().join(" ")
}
