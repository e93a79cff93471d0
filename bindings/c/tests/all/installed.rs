//! Installs the library in a folder, and compiles programs against it.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

/// The library with which a program is linked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Link {
    Shared,
    Static,
}

pub(crate) fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The folder in which the library is installed.
pub(crate) fn prefix() -> &'static Path {
    static PREFIX: LazyLock<PathBuf> = LazyLock::new(|| {
        let prefix = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("installed");
        // The libraries are built for this test, and are in the same folder.
        let test = std::env::current_exe().unwrap();
        let mut install = Command::new(workspace().join("scripts/install-lib"));
        succeed(install.arg(test.parent().unwrap()).arg(&prefix).env_remove("DESTDIR"));
        prefix
    });
    &PREFIX
}

/// Compiles sources of the workspace to a program, with the flags of pkg-config.
pub(crate) fn compile(name: &str, link: Link, flags: &[&str], sources: &[&str]) -> PathBuf {
    let program = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{link:?}"));
    let cpp = sources[0].ends_with("cpp");
    let mut compiler = Command::new(if cpp { "g++" } else { "gcc" });
    compiler.arg(if cpp { "-std=c++17" } else { "-std=c11" });
    compiler.args(["-D_POSIX_C_SOURCE=200809L", "-O1", "-g", "-Wall", "-Wextra", "-Wpedantic"]);
    compiler.args(["-Werror", "-pthread"]).args(flags).arg("-o").arg(&program);
    compiler.args(sources.iter().map(|source| workspace().join(source)));
    let flags = pkg_config(link);
    match link {
        Link::Shared => {
            compiler.args(&flags).arg(format!("-Wl,-rpath,{}/lib", prefix().display()));
        }
        // Names the archive itself, as the linker would prefer the shared library.
        Link::Static => {
            let archive = prefix().join("lib/libsunder_transport.a");
            compiler.args(flags.iter().map(|flag| match flag.as_str() {
                "-lsunder_transport" => archive.to_str().unwrap(),
                flag => flag,
            }));
        }
    }
    succeed(&mut compiler);
    program
}

fn pkg_config(link: Link) -> Vec<String> {
    let mut command = Command::new("pkg-config");
    command.env("PKG_CONFIG_PATH", prefix().join("lib/pkgconfig")).args(["--cflags", "--libs"]);
    if let Link::Static = link {
        command.arg("--static");
    }
    succeed(command.arg("sunder-transport")).split_whitespace().map(str::to_owned).collect()
}

/// Runs a program for at most a minute.
pub(crate) fn program(path: &Path) -> Command {
    let mut command = Command::new("timeout");
    command.arg("60").arg(path);
    // Keeps measured paths out of the user's cache.
    command.env("XDG_STATE_HOME", concat!(env!("CARGO_TARGET_TMPDIR"), "/state"));
    command
}

/// Runs a command, which must succeed, and returns what it prints.
pub(crate) fn succeed(command: &mut Command) -> String {
    let Output { status, stdout, stderr } =
        command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert!(status.success(), "{command:?}: {status}\n{stdout}{stderr}");
    stdout.into_owned()
}
