//! The examples in C and C++, and the adapter for EMP-toolkit.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Stdio};

use crate::installed::{Link, compile, program, succeed, workspace};

/// A server, killed when dropped if a test fails.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Sends a message to the server and back over `tcp`. Returns what the client prints.
fn echo(server: &Path, client: &Path, message: &str) -> String {
    let mut server =
        Server(program(server).arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap());
    let mut command = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut command).unwrap();
    let (name, arguments) = command.trim().split_once(' ').unwrap();
    assert_eq!(name, "echo_client");
    let printed = succeed(program(client).args(arguments.split(' ')).args(["tcp", message]));
    assert!(server.0.wait().unwrap().success());
    printed
}

#[test]
fn a_client_and_a_server_in_c_and_cpp_echo_a_message() {
    let compiled = |folder: &str, name: &str, link| {
        let source = format!("examples/{folder}/{name}.{folder}");
        compile(&format!("{name}-{folder}"), link, &[], &[&source])
    };
    let servers =
        [compiled("c", "echo_server", Link::Shared), compiled("cpp", "echo_server", Link::Static)];
    let clients =
        [compiled("c", "echo_client", Link::Static), compiled("cpp", "echo_client", Link::Shared)];
    for server in &servers {
        for client in &clients {
            assert_eq!(echo(server, client, "Grüße"), "tcp: Grüße\n");
        }
    }
}

/// The code in the guide is that of the examples, so it is compiled and run; `scripts/test-python`
/// runs the Python examples.
#[test]
fn the_code_of_the_guide_is_that_of_the_examples() {
    let guide = fs::read_to_string(workspace().join("docs/guides/languages.md")).unwrap();
    let mut blocks = 0;
    for language in ["c", "cpp", "py"] {
        let folder = if language == "py" { "python" } else { language };
        let examples = ["echo_client", "echo_server"].map(|name| {
            let path = workspace().join(format!("examples/{folder}/{name}.{language}"));
            fs::read_to_string(path).unwrap()
        });
        for block in guide.split(&format!("\n```{folder}\n")).skip(1) {
            let code = block.split("```").next().unwrap();
            assert!(examples.iter().any(|example| example.contains(code)), "{code}");
            blocks += 1;
        }
    }
    assert_eq!(blocks, 6);
}

/// With a base class of each of the two forms that EMP-toolkit has had.
#[test]
fn a_protocol_written_for_emp_runs_over_a_connection() {
    for form in ["template", "virtual"] {
        let base = format!("-I{}/tests/emp/{form}", env!("CARGO_MANIFEST_DIR"));
        let source = "examples/emp/two_parties.cpp";
        let path = compile(&format!("two_parties-{form}"), Link::Shared, &[&base], &[source]);
        // 1 to 100,000 and 1,000 to 100,999.
        let sum: u64 = (1..=100_000).chain(1000..=100_999).sum();
        let printed = succeed(program(&path).args(["127.0.0.1", "0", "tcp"]));
        assert_eq!(printed, format!("tcp: {sum} {sum}, 800008 bytes sent\n"));
    }
}
