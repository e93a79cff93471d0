//! Ed25519 keys: what stock programs make of signatures, and groups that generate a key.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use keys::{AnyPublicKey, Ed25519PublicKey, IdentitySecretKey};
use tempfile::TempDir;

use super::group::{Group, Server, WAIT_TIMEOUT, error_of, nodes, wait_until};
use super::pkcs11::{has, module};
use crate::common::{free_address, sunder};

const HEALTH: &str = r#"{"ok":true,"problem":"","problem_s":null,"epoch":1,"height":1,
    "waiting_s":null,"connected":3,"needed":1}"#;

/// A server that answers as `sunder quorum node` does, at the socket `api`. It has a whole key, and
/// signs everything.
struct WholeKeyServer {
    place: TempDir,
}

impl WholeKeyServer {
    fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        let secret = IdentitySecretKey::new(&[7; 32]);
        let key = Ed25519PublicKey::from_bytes(&secret.public().to_bytes()).unwrap();
        let pem = AnyPublicKey::from(key).to_pem();
        let listener = UnixListener::bind(place.path().join("api")).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                answer(&mut stream.unwrap(), &secret, &pem);
            }
        });
        Self { place }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.place.path().join(name)
    }

    /// What a script of the shell prints that succeeds.
    fn succeeds(&self, script: &str) -> String {
        succeeds(self.place.path(), script)
    }

    /// Why a command of `sunder quorum` is refused.
    fn refuses(&self, arguments: &str) -> String {
        let arguments: Vec<&str> = ["quorum"].into_iter().chain(arguments.split(' ')).collect();
        error_of(self.place.path(), &arguments, 2)
    }
}

/// Answers one request of HTTP.
fn answer(stream: &mut UnixStream, secret: &IdentitySecretKey, pem: &str) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0; 1];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).unwrap();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; len.map_or(0, |len| len.parse().unwrap())];
    stream.read_exact(&mut body).unwrap();
    let answer = match head.split(' ').nth(1).unwrap() {
        "/v1/health" => HEALTH.as_bytes().to_vec(),
        "/v1/public-key" => pem.as_bytes().to_vec(),
        "/v1/signatures?encoding=ed25519" => secret.sign(&body).to_vec(),
        other => panic!("{other}"),
    };
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", answer.len());
    // The client may have gone away.
    let _ = stream.write_all(&[head.as_bytes(), &answer].concat());
}

/// What a script of the shell prints that succeeds. `sunder` is the command, MODULE the module for
/// PKCS #11, and `agent` the socket of an ssh agent.
fn succeeds(place: &Path, script: &str) -> String {
    let sunder = Path::new(env!("CARGO_BIN_EXE_sunder")).parent().unwrap();
    let output = Command::new("sh")
        .args(["-e", "-c", script])
        .current_dir(place)
        .env("PATH", format!("{}:{}", sunder.display(), std::env::var("PATH").unwrap()))
        .env("HOME", place)
        .env("MODULE", module())
        .env("SUNDER_PKCS11_SOCKET", "api")
        .env("SSH_AUTH_SOCK", place.join("agent"))
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let [printed, errors] = [output.stdout, output.stderr].map(|it| String::from_utf8(it).unwrap());
    assert!(output.status.success(), "{script}: {printed}{errors}");
    printed
}

/// The command by which `openssl` verifies `FILE.sig`.
fn verify(file: &str) -> String {
    format!(
        "openssl pkeyutl -verify -pubin -inkey public.pem -rawin -in {file} -sigfile {file}.sig"
    )
}

#[test]
fn openssl_accepts_ed25519_signatures_in_the_formats() {
    let server = WholeKeyServer::start();
    fs::write(server.path("release.txt"), "release 1.0\n").unwrap();
    let printed = server.succeeds(&format!(
        "sunder quorum pubkey --socket api > public.pem
        openssl pkey -pubin -in public.pem -noout -text
        sunder quorum sign --socket api release.txt
        {}",
        verify("release.txt")
    ));
    assert!(printed.starts_with("ED25519 Public-Key:"), "{printed}");
    assert!(printed.ends_with("Signature Verified Successfully\n"), "{printed}");

    // A request, and an authority with a certificate by it.
    let printed = server.succeeds(
        "sunder quorum prepare x509-csr --pubkey public.pem --subject CN=Office --out request.tbs
        sunder quorum sign --socket api --format x509-csr request.tbs
        openssl req -in request.csr -noout -verify -text 2>&1
        sunder quorum prepare x509-cert --pubkey public.pem --authority --subject CN=Office \
            --days 365 --out ca.tbs
        openssl genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out www.key
        openssl pkey -in www.key -pubout -out www.pem
        sunder quorum prepare x509-cert --pubkey public.pem --issuer CN=Office --key www.pem \
            --subject CN=www.example.org --name www.example.org --out www.tbs
        sunder quorum sign --socket api --format x509-cert ca.tbs www.tbs
        openssl verify -x509_strict -purpose sslserver -CAfile ca.crt \
            -verify_hostname www.example.org www.crt
        ! openssl verify -CAfile ca.crt -verify_hostname other.example.org www.crt",
    );
    assert!(printed.contains("verify OK"), "{printed}");
    assert!(printed.contains("Signature Algorithm: ED25519"), "{printed}");

    // A token.
    let printed = server.succeeds(&format!(
        "printf '{{\"sub\": \"alice\"}}' > claims
        sunder quorum prepare jwt --pubkey public.pem claims
        sunder quorum sign --socket api --format jwt claims.tbs
        cp claims.tbs input
        cut -d . -f 3 claims.jwt | tr -- -_ +/ | tr -d '\\n' > digits
        printf == >> digits
        openssl base64 -d -A -in digits -out input.sig
        {}
        cut -d . -f 1 claims.jwt | tr -d '\\n' | base64 -di || true",
        verify("input")
    ));
    assert!(printed.contains("Signature Verified Successfully"), "{printed}");
    assert!(printed.contains("\"alg\":\"EdDSA\""), "{printed}");
    let key = server.succeeds("sunder quorum pubkey --socket api --format jwk");
    let key: serde_json::Value = serde_json::from_str(&key).unwrap();
    assert_eq!((&key["kty"], &key["crv"]), (&"OKP".into(), &"Ed25519".into()));
    accepts_cms(&server);
    refuses_what_does_not_fit(&server);
}

/// Before version 3.5, `openssl` has no CMS with Ed25519 keys.
fn accepts_cms(server: &WholeKeyServer) {
    let printed = server.succeeds(
        "sunder quorum prepare x509-cert --pubkey public.pem --subject CN=Signer \
            --purpose email-protection --out signer.tbs
        sunder quorum sign --socket api --format x509-cert signer.tbs
        sunder quorum prepare cms --pubkey public.pem release.txt --out cms.tbs
        sunder quorum sign --socket api --format cms --certificate signer.crt cms.tbs
        openssl asn1parse -inform DER -in cms.p7s",
    );
    assert!(printed.contains(":ED25519") && printed.contains(":sha512"), "{printed}");
}

fn refuses_what_does_not_fit(server: &WholeKeyServer) {
    let digest = "servers sign whole messages";
    for (arguments, expected) in [
        ("prepare openpgp --pubkey public.pem release.txt", digest),
        ("prepare openpgp-key --pubkey public.pem --user-id a --out key.tbs", digest),
        ("prepare git --pubkey public.pem release.txt", digest),
        ("git-sign --socket api -- -bsau a", digest),
        ("prepare jwt --algorithm ps256 --pubkey public.pem claims", "another algorithm"),
        ("sign --socket api --encoding pss --out - release.txt", "--encoding is for RSA keys"),
    ] {
        let message = server.refuses(arguments);
        assert!(message.contains(expected), "{arguments}: {message}");
    }
    // Prepared for an RSA key.
    server.succeeds("sunder quorum prepare cms release.txt --out rsa.tbs");
    let sign = "sign --socket api --format cms --certificate signer.crt rsa.tbs";
    let message = server.refuses(sign);
    assert!(message.contains("another algorithm"), "{message}");
}

#[test]
fn openssh_and_git_sign_with_an_ed25519_key_of_a_quorum() {
    if !has("ssh-keygen") || !has("git") {
        return;
    }
    let server = WholeKeyServer::start();
    let agent = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["quorum", "ssh-agent", "--socket", "api", "--listen", "agent"])
        .current_dir(server.place.path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _agent = Server(agent);
    wait_until("the agent listens", || UnixStream::connect(server.path("agent")).is_ok());
    fs::write(server.path("release.txt"), "release 1.0\n").unwrap();
    let printed = server.succeeds(
        "sunder quorum pubkey --socket api --format ssh > group.pub
        ssh-keygen -l -f group.pub
        ssh-add -L | cmp - group.pub
        printf 'office@example.org ' | cat - group.pub > signers
        ssh-keygen -q -Y sign -f group.pub -n file release.txt
        check='ssh-keygen -Y verify -f signers -I office@example.org -n file -s release.txt.sig'
        $check < release.txt
        if echo another | $check; then exit 1; fi
        git init --quiet repository && cd repository
        git config user.name office && git config user.email office@example.org
        git config gpg.format ssh && git config user.signingKey ../group.pub
        git config gpg.ssh.allowedSignersFile ../signers
        git commit --quiet --allow-empty -S -m first && git tag -s v1 -m 'release 1'
        git verify-commit HEAD && git verify-tag v1
        cd .. && ssh-keygen -q -t rsa -N '' -f user
        ssh-keygen -q -s group.pub -U -I alice -n alice -V +1h user.pub
        ssh-keygen -L -f user-cert.pub",
    );
    assert!(printed.contains("(ED25519)"), "{printed}");
    assert!(printed.contains("Good \"file\" signature for office@example.org"), "{printed}");
    assert!(printed.contains("using ssh-ed25519"), "{printed}");
}

#[test]
fn pkcs11_tool_signs_with_an_ed25519_key_of_a_quorum() {
    if !has("pkcs11-tool") {
        return;
    }
    let server = WholeKeyServer::start();
    fs::write(server.path("message"), "message\n").unwrap();
    let printed = server.succeeds(&format!(
        "sunder quorum pubkey --socket api > public.pem
        pkcs11-tool --module $MODULE -M -O
        pkcs11-tool --module $MODULE --sign -m EDDSA -i message -o message.sig
        {}
        ! pkcs11-tool --module $MODULE --sign -m SHA256-RSA-PKCS -i message -o none 2>&1",
        verify("message")
    ));
    for expected in [
        "EDDSA, keySize={255,255}, sign",
        "Private Key Object; EC_EDWARDS",
        "Signature Verified Successfully",
        "the mechanism is not one of the group's key",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
}

/// Servers on loopback, numbered from 1, set up by the commands of the guide. The first four begin
/// from a bundle.
pub(super) struct BundledGroup {
    /// Their files and addresses.
    pub(super) files: Group,
    /// The line of each server that is set up.
    pub(super) lines: Vec<String>,
    /// The SHA-256 of the list of the first four, if they generate the key, or of the public key.
    pub(super) digest: String,
}

impl BundledGroup {
    /// A group whose servers share a key by a polynomial, as `--key` names it.
    pub(super) fn new(key: &str) -> Self {
        let place = tempfile::tempdir().unwrap();
        let addresses = (0..8).map(|_| free_address().to_string()).collect();
        let files = Group { place, addresses };
        let mut group = Self { files, lines: vec![], digest: String::new() };
        (1..=4).for_each(|number| group.set_up(number, ""));
        let founders = group.lines.join(" ");
        let init = format!("sunder quorum init --key {key} --bundle group.bundle");
        let printed = group.succeeds(&format!("{init} {founders}"));
        let (_, digest) = printed.trim().split_once(" has the SHA-256 ").unwrap();
        digest.clone_into(&mut group.digest);
        group
    }

    /// Writes the configuration of a server.
    pub(super) fn set_up(&mut self, number: usize, more: &str) {
        let address = &self.files.addresses[number - 1];
        let line = self.succeeds(&format!(
            "sunder init quorum --listen {address} --out {number}.toml --store store-{number} \
                --socket {number}.api {more}"
        ));
        self.lines.push(line.trim().to_owned());
    }

    /// The directory of all files.
    pub(super) fn place(&self) -> &Path {
        self.files.place.path()
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.files.path(name)
    }

    pub(super) fn succeeds(&self, script: &str) -> String {
        succeeds(self.place(), script)
    }

    /// Starts a server. Its log is in a file.
    pub(super) fn start(&self, number: usize, bundle: &[&str]) -> Server {
        let log = fs::File::create(self.path(&format!("{number}.log"))).unwrap();
        let child = Command::new(env!("CARGO_BIN_EXE_sunder"))
            .args(["quorum", "node", "--config", &format!("{number}.toml")])
            .args(bundle)
            .current_dir(self.place())
            .env("RUNTIME_DIRECTORY", self.place())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Server(child)
    }

    pub(super) fn log(&self, number: usize) -> String {
        fs::read_to_string(self.path(&format!("{number}.log"))).unwrap_or_default()
    }

    /// Runs a command of `sunder quorum` until it succeeds.
    pub(super) fn retry(&self, arguments: &str) -> String {
        let arguments: Vec<&str> = ["quorum"].into_iter().chain(arguments.split(' ')).collect();
        let deadline = Instant::now() + WAIT_TIMEOUT;
        loop {
            let output = sunder(self.place(), &arguments);
            if output.status.success() {
                return String::from_utf8(output.stdout).unwrap();
            }
            let errors = String::from_utf8_lossy(&output.stderr);
            let logs: String = (1..=8).map(|number| self.log(number)).collect();
            assert!(Instant::now() < deadline, "{arguments:?}: {errors}{logs}");
            thread::sleep(Duration::from_millis(50));
        }
    }
}

#[test]
fn servers_generate_an_ed25519_key_sign_with_it_and_move_it() {
    let mut group = BundledGroup::new("ed25519");
    let of_ceremony = ["--bundle", "group.bundle"];
    let mut servers = vec![group.start(1, &of_ceremony)];
    wait_until("the server answers", || UnixStream::connect(group.path("1.api")).is_ok());
    let pubkey = ["quorum", "pubkey", "--socket", "1.api"];
    let message = error_of(group.place(), &pubkey, 1);
    assert!(message.contains("still generating its key"), "{message}");
    servers.extend((2..=4).map(|number| group.start(number, &of_ceremony)));
    let pem = group.retry("pubkey --socket 1.api");
    fs::write(group.path("public.pem"), &pem).unwrap();
    for number in 2..=4 {
        assert_eq!(group.retry(&format!("pubkey --socket {number}.api")), pem);
        assert!(group.log(number).contains(&group.digest), "{}", group.log(number));
    }
    fs::write(group.path("release.txt"), "release 1.0\n").unwrap();
    for number in [1, 2] {
        group.retry(&format!("register --socket {number}.api release.txt"));
    }
    group.retry("sign --socket 1.api release.txt");
    let printed = group.succeeds(&verify("release.txt"));
    assert!(printed.contains("Signature Verified Successfully"), "{printed}");
    openssh_signs(&group);
    programs_accept_what_is_registered(&group);
    // The exit code depends on where the test runs.
    let doctor = sunder(group.place(), &["doctor", "--config", "1.toml"]);
    let doctor = String::from_utf8(doctor.stdout).unwrap();
    for expected in [&*format!("their list has the SHA-256 {}", group.digest), "it runs in epoch 1"]
    {
        assert!(doctor.contains(expected), "{expected}: {doctor}");
    }

    // Others join. A server that is not one of those that generate the key needs the key.
    let of_founders = ["init", "quorum", "--out", "9.toml", "--listen", "127.0.0.1:1"];
    let joins = [&of_founders[..], &["--joins", "group.bundle"]].concat();
    let message = error_of(group.place(), &joins, 2);
    assert!(message.contains("sunder quorum bundle"), "{message}");
    group.succeeds("sunder quorum bundle --socket 1.api joining.bundle");
    (5..=8).for_each(|number| group.set_up(number, "--joins joining.bundle"));
    servers.extend((5..=8).map(|number| group.start(number, &[])));
    let list = group.lines[4..].join(" ");
    for number in [1, 2] {
        group.retry(&format!("refresh --no-wait --socket {number}.api {list}"));
    }
    for number in [5, 6] {
        group.retry(&format!("register --socket {number}.api release.txt"));
    }
    fs::remove_file(group.path("release.txt.sig")).unwrap();
    group.retry("sign --pubkey public.pem --socket 5.api release.txt");
    let printed = group.succeeds(&verify("release.txt"));
    assert!(printed.contains("Signature Verified Successfully"), "{printed}");
    assert_eq!(group.retry("pubkey --socket 5.api"), pem);

    let printed = group.succeeds(
        "sunder quorum headers --socket 5.api headers
        sunder quorum verify-epochs --pubkey public.pem --at-least 2 headers
        sunder quorum verify-epochs --pubkey public.pem --socket 1.api --socket 5.api
        openssl genpkey -algorithm ED25519 -out other.key
        openssl pkey -in other.key -pubout -out other.pem",
    );
    assert_eq!(printed.matches("epoch 2 since").count(), 2, "{printed}");
    let epochs = ["quorum", "verify-epochs", "--pubkey", "other.pem", "headers"];
    error_of(group.place(), &epochs, 3);
    drop(servers);
}

/// What two servers have registered in a format, and through the PKCS #11 module.
fn programs_accept_what_is_registered(group: &BundledGroup) {
    let printed = group.succeeds(
        "prepare='sunder quorum prepare' names='--pubkey public.pem --subject CN=Office'
        $prepare x509-csr $names --out request.tbs
        $prepare x509-cert $names --authority --days 365 --out ca.tbs
        for format in x509-csr:request.tbs x509-cert:ca.tbs; do
            for socket in 1.api 2.api; do
                sunder quorum register --socket $socket --format ${format%:*} ${format#*:}
            done
            sunder quorum sign --socket 1.api --format ${format%:*} ${format#*:}
        done
        openssl req -in request.csr -noout -verify 2>&1
        openssl verify -x509_strict -CAfile ca.crt ca.crt",
    );
    assert!(printed.contains("verify OK") && printed.contains("ca.crt: OK"), "{printed}");
    if has("pkcs11-tool") {
        let printed = group.succeeds(&format!(
            "rm release.txt.sig
            export SUNDER_PKCS11_SOCKET=1.api
            pkcs11-tool --module $MODULE --sign -m EDDSA -i release.txt -o release.txt.sig
            {}",
            verify("release.txt")
        ));
        assert!(printed.contains("Signature Verified Successfully"), "{printed}");
    }
}

/// The ssh agent signs what is registered, and `ssh-keygen` verifies it.
pub(super) fn openssh_signs(group: &BundledGroup) {
    if !has("ssh-keygen") {
        return;
    }
    group.succeeds(
        r"{ printf 'SSHSIG\0\0\0\004file\0\0\0\0\0\0\0\006sha512\0\0\0\100'
            openssl dgst -sha512 -binary release.txt; } >release.sshsig
        for socket in 1.api 2.api; do sunder quorum register --socket $socket release.sshsig; done
        sunder quorum pubkey --socket 1.api --format ssh >group.pub
        printf 'office@example.org ' | cat - group.pub >signers",
    );
    let agent = Command::new(env!("CARGO_BIN_EXE_sunder"))
        .args(["quorum", "ssh-agent", "--socket", "1.api", "--listen", "agent"])
        .current_dir(group.place())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let _agent = Server(agent);
    wait_until("the agent listens", || UnixStream::connect(group.path("agent")).is_ok());
    let printed = group.succeeds(
        "cp release.txt other.txt
        ssh-keygen -q -Y sign -f group.pub -n file other.txt
        ssh-keygen -Y verify -f signers -I office@example.org -n file -s other.txt.sig <other.txt",
    );
    assert!(printed.starts_with("Good \"file\" signature for office@example.org"), "{printed}");
}

/// Doctor says what the start refuses, before and after the group has generated its key.
#[test]
fn doctor_names_cometbft_with_an_ed25519_key() {
    let group = BundledGroup::new("ed25519");
    let config = fs::read_to_string(group.path("1.toml")).unwrap();
    let config = config.replacen("bundle = ", "# bundle = ", 1);
    fs::write(
        group.path("key.pem"),
        group.succeeds("openssl genpkey -algorithm ed25519 | openssl pkey -pubout"),
    )
    .unwrap();
    for known in ["bundle = \"group.bundle\"", "public_key = \"key.pem\""] {
        for (setting, is_wrong) in [("cometbft = \"c\"\n", true), ("", false)] {
            fs::write(group.path("x.toml"), format!("{known}\n{setting}{config}")).unwrap();
            let output = sunder(group.place(), &["doctor", "--config", "x.toml", "--json"]);
            let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
            let findings = report["findings"].as_array().unwrap();
            let found = findings.iter().find(|it| it["subject"] == "cometbft");
            assert_eq!(found.is_some(), is_wrong, "{known}: {report}");
            if let Some(found) = found {
                assert_eq!(found["level"], "error");
                assert!(found["fix"].as_str().unwrap().starts_with("remove `cometbft`"), "{found}");
            }
        }
    }
}

/// No one splits an Ed25519 key, so there are no share files; and groups may be larger.
#[test]
fn a_list_of_servers_that_generate_a_key_has_up_to_31() {
    let place = tempfile::tempdir().unwrap();
    let addresses: Vec<String> = (1..=32).map(|number| format!("192.0.2.{number}:6530")).collect();
    let addresses: Vec<&str> = addresses.iter().map(String::as_str).collect();
    nodes(place.path(), &addresses[..31]);
    let init = ["quorum", "init", "--nodes", "nodes.toml", "--bundle", "group.bundle"];
    let of_servers = [&init[..], &["--key", "ed25519"]].concat();
    let wrong = error_of(place.path(), &[&of_servers[..], &["--f", "4"]].concat(), 2);
    assert!(wrong.contains("31 servers, but f = 4 needs 13"), "{wrong}");
    let wrong = error_of(place.path(), &init, 2);
    assert!(wrong.contains("13"), "{wrong}");
    let output = sunder(place.path(), &[&of_servers[..], &["--f", "10", "--json"]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&document["faulty"], &document["servers"]), (&10.into(), &31.into()));
    assert!(document["key"].is_null() && document["shares"].is_null(), "{document}");
    assert_eq!(document["list"].as_str().map(str::len), Some(64));
    // It has nothing secret, and its digest is that of what it lists.
    let bundle = quorum::ceremony_files::read_bundle(&place.path().join("group.bundle")).unwrap();
    assert_eq!(bundle.anchor().digest().to_string(), document["list"].as_str().unwrap());
    assert!(!bundle.has_shares() && bundle.public().is_none());
    let again = error_of(place.path(), &of_servers, 2);
    assert!(again.contains("exists"), "{again}");
    nodes(place.path(), &addresses);
    let wrong = error_of(place.path(), &of_servers, 2);
    assert!(wrong.contains("not 32"), "{wrong}");
}
