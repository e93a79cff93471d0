//! OpenSSH and git sign with a quorum through its ssh agent.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use super::group::{Group, Server, signal, wait_until};
use crate::common::{free_port, sunder};

/// Rules for what the tests sign, as the guide has them: tags and commits of git, and certificates
/// of users.
const RULES: &str = "
[[rule]]
prefix = \"SSHSIG\\u0000\\u0000\\u0000\\u0003git\\u0000\"

[[rule]]
prefix = \"\\u0000\\u0000\\u0000\\u0020ssh-ed25519-cert-v01@openssh.com\"
";

/// A group whose first two servers have [`RULES`], and an agent.
struct AgentOfGroup {
    group: Group,
    agent: Server,
    _servers: Vec<Server>,
}

impl AgentOfGroup {
    fn new() -> Self {
        let group = Group::new(4);
        for number in [1, 2] {
            let path = group.path(&format!("{number}.toml"));
            let config = fs::read_to_string(&path).unwrap();
            fs::write(path, config + RULES).unwrap();
        }
        let servers = (1..=4).map(|number| group.start(number)).collect();
        group.wait_until_healthy(1..=4);
        // The first socket is not there: the next one is used.
        let log = fs::File::create(group.path("agent.log")).unwrap();
        let agent = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(["quorum", "ssh-agent", "--socket", "missing", "--socket", "1.api"])
            .args(["--socket", "2.api", "--listen", "agent", "--pubkey", "made/public.pem"])
            .current_dir(group.place.path())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        let agent = Server(agent);
        wait_until("the agent listens", || UnixStream::connect(group.path("agent")).is_ok());
        let key = group.run(&["pubkey", "--socket", "1.api", "--format", "ssh"]);
        fs::write(group.path("group.pub"), &key).unwrap();
        fs::write(group.path("signers"), format!("office@example.org {key}")).unwrap();
        Self { group, agent, _servers: servers }
    }

    fn place(&self) -> &Path {
        self.group.place.path()
    }

    /// Runs a script of the shell with the agent.
    fn shell(&self, script: &str) -> Output {
        Command::new("sh")
            .args(["-e", "-c", script])
            .current_dir(self.place())
            .env("SSH_AUTH_SOCK", self.group.path("agent"))
            .env("HOME", self.place())
            .env("PATH", format!("{}:/usr/sbin", std::env::var("PATH").unwrap()))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    /// What a script prints that succeeds.
    fn succeeds(&self, script: &str) -> String {
        let output = self.shell(script);
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{script}: {errors}{}{}", self.log(), self.group.logs());
        String::from_utf8(output.stdout).unwrap()
    }

    fn log(&self) -> String {
        fs::read_to_string(self.group.path("agent.log")).unwrap()
    }
}

#[test]
fn openssh_and_git_sign_with_a_quorum_through_its_ssh_agent() {
    for tool in ["ssh-keygen", "git"] {
        if Command::new(tool).arg("--help").output().is_err() {
            eprintln!("SKIPPED: {tool} is not installed");
            return;
        }
    }
    let agent = AgentOfGroup::new();
    let mode = fs::metadata(agent.group.path("agent")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let line = fs::read_to_string(agent.group.path("group.pub")).unwrap();
    assert_eq!(agent.succeeds("ssh-add -L"), line);
    // OpenSSH reads the key as openssl's: the same PEM.
    let pem = agent.succeeds("ssh-keygen -e -m PKCS8 -f group.pub");
    assert_eq!(pem, fs::read_to_string(agent.group.path("made/public.pem")).unwrap());

    // A file, after its SSHSIG message was registered at two servers.
    fs::write(agent.group.path("release.txt"), "release 1.0\n").unwrap();
    let refused = agent.shell("ssh-keygen -Y sign -f group.pub -n file release.txt");
    let errors = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && errors.contains("agent refused"), "{errors}");
    assert!(agent.log().contains("the message is not registered here"), "{}", agent.log());
    agent.succeeds(
        r"{ printf 'SSHSIG\0\0\0\004file\0\0\0\0\0\0\0\006sha512\0\0\0\100'
            openssl dgst -sha512 -binary release.txt; } >release.sshsig",
    );
    for socket in ["1.api", "2.api"] {
        agent.group.run(&["register", "--socket", socket, "release.sshsig"]);
    }
    agent.succeeds("ssh-keygen -Y sign -f group.pub -n file release.txt");
    let verify = "ssh-keygen -Y verify -f signers -I office@example.org -n file -s release.txt.sig";
    let verified = agent.succeeds(&format!("{verify} <release.txt"));
    assert!(verified.starts_with("Good \"file\" signature for office@example.org"), "{verified}");
    assert!(!agent.shell(&format!("echo another | {verify}")).status.success());

    // A tag and a commit, by a rule for git's namespace. The rule admits no other namespace.
    agent.succeeds(
        "git init --quiet repository && cd repository
        git config user.name office && git config user.email office@example.org
        git config gpg.format ssh && git config user.signingKey ../group.pub
        git config gpg.ssh.allowedSignersFile ../signers
        git commit --quiet --allow-empty -S -m first && git tag -s v1 -m 'release 1'
        git verify-commit HEAD && git verify-tag v1",
    );
    let other = agent.shell("ssh-keygen -Y sign -f group.pub -n git2 <release.txt");
    assert!(!other.status.success());

    // Users' certificates by a rule; with SHA-256, since the agent can do that, too.
    agent.succeeds(
        "ssh-keygen -q -t ed25519 -N '' -f user
        ssh-keygen -q -s group.pub -U -t rsa-sha2-256 -I alice -n alice -V +1h user.pub
        ssh-keygen -q -s group.pub -U -I alice -n alice -V +1h user.pub
        ssh-keygen -L -f user-cert.pub | grep -q 'using rsa-sha2-512'",
    );
    logs_in(&agent);

    // The agent's end removes its socket.
    let AgentOfGroup { group, mut agent, .. } = agent;
    signal(&agent, "TERM");
    assert!(agent.0.wait().unwrap().success());
    assert!(!group.path("agent").exists());
}

/// A user logs in by a certificate that the group has signed.
fn logs_in(agent: &AgentOfGroup) {
    if !rustix::process::geteuid().is_root() || !Path::new("/usr/sbin/sshd").exists() {
        eprintln!("SKIPPED: a log-in, because sshd is missing or this is not root");
        return;
    }
    let port = free_port();
    let place = agent.place().display();
    fs::create_dir_all("/run/sshd").unwrap();
    agent.succeeds("ssh-keygen -q -t ed25519 -N '' -f host");
    fs::write(
        agent.group.path("sshd.conf"),
        format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {place}/host\nPidFile none\nUsePAM no\n\
             TrustedUserCAKeys {place}/group.pub\nAuthorizedPrincipalsFile {place}/principals\n\
             StrictModes no\nPasswordAuthentication no\nPermitRootLogin yes\n"
        ),
    )
    .unwrap();
    fs::write(agent.group.path("principals"), "alice\n").unwrap();
    let log = fs::File::create(agent.group.path("sshd.log")).unwrap();
    let server = Command::new("/usr/sbin/sshd")
        .args(["-D", "-e", "-f"])
        .arg(agent.group.path("sshd.conf"))
        .stderr(log)
        .spawn()
        .unwrap();
    let _server = Server(server);
    wait_until("sshd listens", || std::net::TcpStream::connect(("127.0.0.1", port)).is_ok());
    let output = agent.shell(&format!(
        "SSH_AUTH_SOCK= ssh -F none -p {port} -i user -o CertificateFile=user-cert.pub \
         -o BatchMode=yes -o StrictHostKeyChecking=no -o UserKnownHostsFile=known root@127.0.0.1 \
         echo logged in"
    ));
    let errors = String::from_utf8_lossy(&output.stderr);
    let log = fs::read_to_string(agent.group.path("sshd.log")).unwrap();
    assert_eq!(output.stdout, b"logged in\n", "{errors}\n{log}");
}

/// What a client sends that does not keep to the protocol harms only its connection.
#[test]
fn an_ssh_agent_of_a_quorum_refuses_what_is_wrong() {
    let agent = AgentOfGroup::new();
    let connect = || UnixStream::connect(agent.group.path("agent")).unwrap();
    let framed = |message: &[u8]| {
        let len = u32::try_from(message.len()).unwrap();
        [&len.to_be_bytes()[..], message].concat()
    };
    let string = |bytes: &[u8]| framed(bytes);
    let ask = |message: &[u8]| {
        let mut stream = connect();
        stream.write_all(&framed(message)).unwrap();
        let mut len = [0; 4];
        stream.read_exact(&mut len).unwrap();
        let mut answer = vec![0; u32::from_be_bytes(len) as usize];
        stream.read_exact(&mut answer).unwrap();
        answer
    };
    let identities = ask(&[11]);
    assert_eq!(identities[..5], [12, 0, 0, 0, 1]);
    let len = u32::from_be_bytes(*identities[5..].first_chunk().unwrap()) as usize;
    let key = &identities[9..9 + len];
    let message = b"SSHSIG\0\0\0\x03git\0";
    let request = |key: &[u8], flags: u8| {
        [&[13], &string(key)[..], &string(message), &[0, 0, 0, flags]].concat()
    };
    assert_eq!(ask(&request(key, 2))[0], 14);
    assert_eq!(ask(&request(key, 4))[0], 14);
    // SHA-1; another key; what is not supported, as adding a key; what is malformed.
    for refused in [
        request(key, 0),
        request(b"another", 2),
        vec![17, 0],
        vec![27],
        vec![13, 0],
        [&request(key, 2)[..], &[0]].concat(),
        vec![],
    ] {
        assert_eq!(ask(&refused), [5]);
    }
    // A message that is too long ends its connection.
    let mut stream = connect();
    stream.write_all(&(u32::MAX).to_be_bytes()).unwrap();
    assert_eq!(stream.read(&mut [0; 1]).unwrap(), 0);
    // Connections that send nothing, or a part, do not keep others out.
    let idle: Vec<UnixStream> = (0..20).map(|_| connect()).collect();
    for mut stream in &idle {
        stream.write_all(&[0, 0]).unwrap();
    }
    assert_eq!(ask(&[11])[0], 12);
    // Another agent does not take its socket.
    let arguments = ["quorum", "ssh-agent", "--socket", "1.api", "--listen", "agent"];
    let again = sunder(agent.place(), &arguments);
    let errors = String::from_utf8_lossy(&again.stderr);
    assert!(again.status.code() == Some(1) && errors.contains("another agent"), "{errors}");
    let arguments = ["quorum", "ssh-agent", "--socket", "missing", "--listen", "other"];
    let none = sunder(agent.place(), &arguments);
    let errors = String::from_utf8_lossy(&none.stderr);
    assert!(none.status.code() == Some(1) && errors.contains("no server answers at"), "{errors}");
    drop(agent.agent);
}

/// A server that hangs is passed over, and so is one that returns what is no signature. What one
/// server's policy forbids is refused (exit code 3), whatever the others answer.
#[test]
fn servers_of_a_quorum_that_hang_or_lie_are_passed_over() {
    let group = Group::new(4);
    let _servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    let place = group.place.path();
    let _hanging = UnixListener::bind(group.path("hanging")).unwrap();
    let liar = UnixListener::bind(group.path("liar")).unwrap();
    thread::spawn(move || {
        for stream in liar.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 4096];
            let len = stream.read(&mut request).unwrap_or(0);
            let answer: &[u8] = if request[..len].starts_with(b"GET /v1/health") {
                HEALTH.as_bytes()
            } else {
                &[7; 256]
            };
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
            // The client may have gone away.
            let _ = stream.write_all(&[head.as_bytes(), answer].concat());
        }
    });
    fs::write(group.path("message"), "message\n").unwrap();
    fs::write(group.path("other"), "other\n").unwrap();
    for socket in ["1.api", "2.api"] {
        group.run(&["register", "--socket", socket, "message"]);
    }
    let several = ["--socket", "hanging", "--socket", "liar", "--socket", "1.api"];
    let sign = ["sign", "--pubkey", "made/public.pem", "message"];
    group.run(&[&sign[..], &several].concat());
    assert!(group.openssl_accepts("message"));
    let pem = group.run(&[&["pubkey"], &several[2..]].concat());
    assert_eq!(pem, fs::read_to_string(group.path("made/public.pem")).unwrap());
    let sign = ["quorum", "sign", "--socket", "1.api", "--socket", "missing", "other"];
    let refused = sunder(place, &sign);
    let errors = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(3), "{errors}");
    for expected in ["not registered here", "no server answers at missing"] {
        assert!(errors.contains(expected), "{errors}");
    }
}

const HEALTH: &str = r#"{"ok":true,"problem":"","problem_s":null,"epoch":1,"height":1,
    "waiting_s":null,"connected":3,"needed":1}"#;
