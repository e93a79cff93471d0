//! Programs that load the module, and what it must leave alone in them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::server::{SigningServer, UNREAD_LEN};

/// Loads the module, whose functions `call` calls by their places in the standard's list.
const LOAD: &str = "
import ctypes, os, signal, sys
library = ctypes.CDLL(sys.argv[1])
pointer = ctypes.POINTER(ctypes.c_void_p * 70)()
assert library.C_GetFunctionList(ctypes.byref(pointer)) == 0
def call(place, *arguments):
    return ctypes.CFUNCTYPE(ctypes.c_ulong)(pointer[0][place + 1])(*arguments)
INITIALIZE, OPEN_SESSION, SIGN_INIT, SIGN = 0, 12, 42, 43
";

/// Standard error without a reader, and a server that stops to read: each write is one for which
/// the system sends SIGPIPE. Python ignores the signal, programs in C do not.
const WRITES_WITHOUT_READERS: &str = "
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
reader, writer = os.pipe()
os.close(reader)
os.dup2(writer, 2)
socket = os.environ.pop('SUNDER_PKCS11_SOCKET')
os.environ['SUNDER_PKCS11_SOCKET'] = ''
assert call(INITIALIZE, None) == 5
os.environ['SUNDER_PKCS11_SOCKET'] = socket
assert call(INITIALIZE, None) == 0
session = ctypes.c_ulong()
assert call(OPEN_SESSION, ctypes.c_ulong(0), ctypes.c_ulong(4), None, None,
    ctypes.byref(session)) == 0
mechanism = (ctypes.c_ulong * 3)(0x40, 0, 0)
assert call(SIGN_INIT, session, mechanism, ctypes.c_ulong(1)) == 0
message, length = ctypes.create_string_buffer(int(sys.argv[2])), ctypes.c_ulong(256)
out = ctypes.create_string_buffer(256)
code = call(SIGN, session, message, ctypes.c_ulong(len(message)), out, ctypes.byref(length))
assert code == 0x30, code
assert not signal.pthread_sigmask(signal.SIG_BLOCK, []) and not signal.sigpending()
# A signal of the program itself that waits is left to it.
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGPIPE])
signal.pthread_kill(__import__('threading').get_ident(), signal.SIGPIPE)
assert call(INITIALIZE, None) == 0x191
assert signal.sigpending() == {signal.SIGPIPE}
print('alive')
";

fn module() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libsunder_pkcs11.so")
}

/// Runs a script of Python that has loaded the module, with a server.
fn python(interpreter: &Path, script: &str, server: &SigningServer) -> Output {
    Command::new("timeout")
        .arg("60")
        .arg(interpreter)
        .args(["-c", &[LOAD, script].concat()])
        .arg(module())
        .arg(UNREAD_LEN.to_string())
        .env(sunder_pkcs11::config::SOCKET_VARIABLE, server.socket())
        .output()
        .unwrap()
}

#[test]
fn writes_that_nobody_reads_do_not_end_the_program() {
    let server = SigningServer::start();
    let output = python(Path::new("python3"), WRITES_WITHOUT_READERS, &server);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.stdout == b"alive\n", "{}: {errors}", output.status);
}

/// A program that has more permissions than its caller does not take the caller's variables.
#[test]
fn a_privileged_program_reads_the_configuration_of_the_system_only() {
    let server = SigningServer::start();
    let interpreter = server.path().join("python");
    let found = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let found = String::from_utf8(found.unwrap().stdout).unwrap();
    fs::copy(found.trim(), &interpreter).unwrap();
    if chown(&interpreter, None, Some(65_534)).is_err() {
        eprintln!("SKIPPED: this is not root, so no program can be made privileged");
        return;
    }
    let script = "print(os.getgid() != os.getegid(), call(INITIALIZE, None))";
    let usual = python(&interpreter, script, &server);
    assert_eq!(String::from_utf8_lossy(&usual.stdout), "False 0\n");
    fs::set_permissions(&interpreter, fs::Permissions::from_mode(0o2755)).unwrap();
    let privileged = python(&interpreter, script, &server);
    let printed = String::from_utf8_lossy(&privileged.stdout);
    if printed.starts_with("False") {
        eprintln!("SKIPPED: programs in the temporary directory cannot be made privileged");
        return;
    }
    let errors = String::from_utf8_lossy(&privileged.stderr);
    assert_eq!(printed, "True 5\n", "{errors}");
    assert!(errors.contains("/etc/sunder-pkcs11.toml"), "{errors}");
}
