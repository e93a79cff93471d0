//! A program of EMP-toolkit with the adapter, and unchanged through a forward. Where the toolkit is
//! not installed, prints that this was skipped. `CPLUS_INCLUDE_PATH` and `LIBRARY_PATH` name other
//! places than the system's.

use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;

use keys::IdentitySecretKey;
use tokio::runtime::Runtime;
use transport::forward::{PortExposer, PortForwarder};
use transport::{ConnectionOptions, ConnectionSecurity, random_identity};

use crate::installed::{Link, compile, program, succeed};

const TRANSPORTS: [&str; 3] = ["tcp", "burst", "quic"];

/// Compiles the example; `None` without EMP-toolkit.
fn millionaires(name: &str, flags: &[&str]) -> Option<PathBuf> {
    let script = "echo '#include \"emp-sh2pc/emp-sh2pc.h\"' | g++ -std=c++17 -E -x c++ -";
    let mut search = Command::new("sh");
    search.args(["-c", script]).stdout(Stdio::null()).stderr(Stdio::null());
    if !search.status().unwrap().success() {
        eprintln!("SKIPPED: EMP-toolkit (emp-sh2pc/emp-sh2pc.h) is not installed");
        return None;
    }
    // Its headers have warnings, and need the instructions of this processor.
    let compiled = ["-w", "-D_GNU_SOURCE", "-march=native"];
    let libraries = ["-Wl,--no-as-needed", "-lemp-ot", "-lemp-tool", "-lssl", "-lcrypto"];
    let flags: Vec<&str> = compiled.into_iter().chain(flags.iter().copied()).collect();
    Some(compile_with(name, &flags, &libraries))
}

/// The libraries follow the source that needs them.
fn compile_with(name: &str, flags: &[&str], libraries: &[&str]) -> PathBuf {
    let object = format!("{}/{name}.o", env!("CARGO_TARGET_TMPDIR"));
    let build: Vec<&str> = flags.iter().copied().chain(["-c"]).collect();
    let built = compile(&format!("{name}-object"), Link::Shared, &build, &[SOURCE]);
    fs::rename(built, &object).unwrap();
    let program = PathBuf::from(format!("{}/{name}", env!("CARGO_TARGET_TMPDIR")));
    let mut link = Command::new("g++");
    link.arg("-o").arg(&program).arg(&object).args(libraries).arg("-pthread");
    let library = crate::installed::prefix().join("lib");
    link.arg(format!("-L{}", library.display())).arg("-lsunder_transport");
    link.arg(format!("-Wl,-rpath,{}", library.display()));
    succeed(&mut link);
    program
}

const SOURCE: &str = "examples/emp/millionaires.cpp";

/// A port at which nobody listens.
fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Whether a program listens at the port. A test connection would be taken for the other party.
fn is_listening(port: u16) -> bool {
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    let address = format!(":{port:04X} 00000000:0000 0A ");
    sockets.lines().any(|line| line.contains(&address))
}

/// Runs both parties. Party 2 connects when party 1 listens at the port.
fn run(path: &Path, port: u16, first: &[&str], second: &[&str]) {
    thread::scope(|scope| {
        let alice = scope.spawn(|| succeed(program(path).args(first)));
        while !is_listening(port) {
            assert!(!alice.is_finished(), "party 1 does not listen");
            thread::yield_now();
        }
        let of_bob = succeed(program(path).args(second));
        assert_eq!([alice.join().unwrap(), of_bob], ["party 1 is richer\n"; 2]);
    });
}

#[test]
fn a_program_of_emp_toolkit_runs_with_the_adapter() {
    let Some(path) = millionaires("millionaires-adapter", &["-DWITH_SUNDER"]) else { return };
    let folder = tempfile::tempdir().unwrap();
    let key = |name: &str| {
        let path = folder.path().join(name);
        let key = IdentitySecretKey::create(&path).unwrap();
        (path.to_str().unwrap().to_owned(), key.public().to_string())
    };
    let ((alice, alice_key), (bob, bob_key)) = (key("alice.key"), key("bob.key"));
    for transport in TRANSPORTS {
        let port = free_port();
        let number = port.to_string();
        let first = ["1", &number, "100", &alice, &bob_key, transport];
        let second = ["2", &number, "50", &bob, &alice_key, transport, "127.0.0.1"];
        run(&path, port, &first, &second);
    }
}

#[test]
fn a_program_of_emp_toolkit_runs_unchanged_through_a_forward() {
    let Some(path) = millionaires("millionaires-unchanged", &[]) else { return };
    let runtime = Runtime::new().unwrap();
    for transport in TRANSPORTS {
        let port = free_port();
        let open = ConnectionSecurity::open(random_identity().unwrap());
        let key = open.public_key().unwrap();
        let target = format!("127.0.0.1:{port}");
        let exposer = PortExposer::bind("127.0.0.1:0", &target, &ConnectionOptions::new(open));
        let exposer = exposer.unwrap();
        let to = exposer.listener().local_addr().to_string();
        let pinned = ConnectionSecurity::pinned(random_identity().unwrap(), vec![key]);
        let options = ConnectionOptions {
            transport: transport.parse().unwrap(),
            ..ConnectionOptions::new(pinned)
        };
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let forwarder = runtime.block_on(PortForwarder::bind(any, &to, options)).unwrap();
        let local = forwarder.local_addr().unwrap().port().to_string();
        runtime.spawn(exposer.run(std::future::pending()));
        runtime.spawn(forwarder.run(std::future::pending()));
        let number = port.to_string();
        run(&path, port, &["1", &number, "100"], &["2", &local, "50", "127.0.0.1"]);
    }
    runtime.shutdown_background();
}
