//! The test programs in C.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use transport::relay::RelayServer;

use crate::installed::{Link, compile, program, succeed};

const STREAMS: &[&str] = &["bindings/c/tests/programs/streams.c"];
const WRAPPER: &[&str] = &["bindings/c/tests/programs/wrapper.cpp"];
const RELAYED: &[&str] = &["bindings/c/tests/programs/relayed.cpp"];
const ERRORS: &[&str] = &["bindings/c/tests/programs/errors.c"];
const REGISTERED: &[&str] = &["bindings/c/tests/programs/registered.c"];
const FORKED: &[&str] = &["bindings/c/tests/programs/forked.c"];

#[test]
fn streams_messages_and_halves_with_the_shared_library() {
    let path = compile("streams", Link::Shared, &[], STREAMS);
    let printed = succeed(program(&path).arg("20000000"));
    assert!(printed.contains("tcp: tcp\n"), "{printed}");
}

#[test]
fn streams_messages_and_halves_with_the_static_library() {
    let path = compile("streams", Link::Static, &[], STREAMS);
    succeed(program(&path).arg("1000000"));
}

#[test]
fn each_failure_has_its_code_and_text() {
    let folder = tempfile::tempdir().unwrap();
    let key = folder.path().join("test.key");
    // RFC 8032, 7.1, test 2.
    fs::write(&key, "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb\n").unwrap();
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    for link in [Link::Shared, Link::Static] {
        let path = compile("errors", link, &[], ERRORS);
        assert_eq!(succeed(program(&path).arg(folder.path())), "done\n");
    }
}

#[test]
fn a_program_adds_a_transport_of_its_own() {
    for link in [Link::Shared, Link::Static] {
        let path = compile("registered", link, &[], REGISTERED);
        assert_eq!(succeed(&mut program(&path)), "unix: 3000000 bytes in each direction\n");
    }
}

#[test]
fn a_forked_child_does_not_disturb_its_parent() {
    let printed = succeed(&mut program(&compile("forked", Link::Shared, &[], FORKED)));
    assert!(printed.contains("burst\n"), "{printed}");
}

#[test]
fn the_wrapper_for_cpp_has_all_of_it() {
    succeed(&mut program(&compile("wrapper", Link::Shared, &[], WRAPPER)));
}

#[test]
fn two_ends_meet_at_a_relay() {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let relay = runtime.block_on(RelayServer::bind("127.0.0.1:0".parse().unwrap())).unwrap();
    let address = relay.local_addr().unwrap().to_string();
    runtime.spawn(relay.run(std::future::pending()));
    let path = compile("relayed", Link::Shared, &[], RELAYED);
    assert_eq!(succeed(program(&path).arg(address)), "hello\n");
    runtime.shutdown_background();
}

/// Valgrind reports no leaks, no reads of uninitialised memory, and no use after free.
#[test]
fn valgrind_finds_nothing() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: valgrind is not installed");
        return;
    }
    let path = compile("valgrind", Link::Shared, &[], STREAMS);
    let mut valgrind = program("valgrind".as_ref());
    valgrind.args(["--quiet", "--error-exitcode=3", "--leak-check=full"]);
    valgrind.args(["--errors-for-leak-kinds=definite,indirect"]);
    let known = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/programs/valgrind.supp");
    valgrind.arg(format!("--suppressions={known}"));
    // Valgrind reports bytes that the assembly of `ring` has encrypted as uninitialised.
    succeed(valgrind.arg(path).args(["100000", "quic"]));
    let path = compile("valgrind-registered", Link::Shared, &[], REGISTERED);
    let mut valgrind = program("valgrind".as_ref());
    valgrind.args(["--quiet", "--error-exitcode=3", "--leak-check=full"]);
    valgrind.args(["--errors-for-leak-kinds=definite"]);
    succeed(valgrind.arg(format!("--suppressions={known}")).arg(path));
}
