//! Signatures of a group in the formats of stock tools, which verify them.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output};

use super::group::{Group, Server, error_of};
use crate::common::sunder;

const SOCKET: [&str; 2] = ["--socket", "1.api"];

/// A group whose first and third server sign, with this at the end of their configurations.
fn group(rules: &str) -> (Group, Vec<Server>) {
    let group = Group::new(4);
    for number in [1, 3] {
        let path = group.path(&format!("{number}.toml"));
        let config = fs::read_to_string(&path).unwrap();
        fs::write(&path, format!("{config}{rules}")).unwrap();
    }
    let servers = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    (group, servers)
}

impl Group {
    fn prepare(&self, format: &str, arguments: &[&str]) -> String {
        let begin: &[&str] = match format {
            "cms" => &["prepare", format],
            _ => &["prepare", format, "--pubkey", "made/public.pem"],
        };
        self.run(&[begin, arguments].concat())
    }

    /// Registers what was prepared at two servers, and has it signed.
    fn sign(&self, format: &str, file: &str, more: &[&str]) {
        for socket in ["1.api", "3.api"] {
            self.run(&["register", "--socket", socket, "--format", format, file]);
        }
        self.run(&[&["sign"], &SOCKET[..], &["--format", format], more, &[file]].concat());
    }

    fn tool(&self, line: &str) -> Output {
        let words: Vec<&str> = line.split(' ').collect();
        Command::new(words[0])
            .args(&words[1..])
            .current_dir(self.place.path())
            .env("GNUPGHOME", self.path("gnupg"))
            .env("LC_ALL", "C")
            .output()
            .unwrap()
    }

    fn accepts(&self, line: &str) -> String {
        let output = self.tool(line);
        let printed = text(&[output.stdout, output.stderr].concat());
        assert!(output.status.success(), "{line}: {printed}");
        printed
    }

    fn refuses(&self, line: &str) {
        let output = self.tool(line);
        assert!(!output.status.success(), "{line}: {}", text(&output.stdout));
    }

    /// Makes the OpenPGP key of the group, `office.asc`, and gives it to gpg.
    fn import_key(&self) {
        let user = "Office <office@example.org>";
        self.prepare("openpgp-key", &["--user-id", user, "--out", "office.tbs"]);
        self.sign("openpgp-key", "office.tbs", &[]);
        fs::create_dir(self.path("gnupg")).unwrap();
        fs::set_permissions(self.path("gnupg"), fs::Permissions::from_mode(0o700)).unwrap();
        let printed = self.accepts("gpg --batch --no-autostart --import office.asc");
        assert!(printed.contains("Office <office@example.org>"), "{printed}");
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Whether programs are there. Otherwise says which one is missing.
pub(super) fn has(programs: &[&str]) -> bool {
    let is_missing = |program: &&&str| {
        !Command::new(program).arg("--version").output().is_ok_and(|it| it.status.success())
    };
    let missing = programs.iter().find(is_missing);
    if let Some(program) = missing {
        eprintln!("skipped: {program} is missing");
    }
    missing.is_none()
}

#[test]
fn openssl_accepts_certificates_requests_cms_and_tokens() {
    let (group, _servers) = group("");
    openssl_accepts_formats(&group);
    check_several_files_and_servers(&group);
}

/// The first and the third server sign. Their RSA key may be shared in any way.
pub(super) fn openssl_accepts_formats(group: &Group) {
    let place = group.place.path();
    group.prepare("x509-csr", &["--subject", "CN=Office,O=Example", "--out", "request.tbs"]);
    group.sign("x509-csr", "request.tbs", &[]);
    let printed = group.accepts("openssl req -in request.csr -noout -verify -subject");
    assert!(printed.contains("verify OK") && printed.contains("O = Example"), "{printed}");

    // An authority, and a certificate by it for a server with a key of another algorithm.
    let printed = group.prepare(
        "x509-cert",
        &["--authority", "--subject", "CN=Office", "--days", "365", "--out", "ca.tbs"],
    );
    assert!(
        printed.starts_with("ca.tbs: certificate of an authority for \"CN=Office\""),
        "{printed}"
    );
    group.sign("x509-cert", "ca.tbs", &[]);
    group.accepts("openssl genpkey -algorithm EC -pkeyopt ec_paramgen_curve:P-256 -out www.key");
    group.accepts("openssl pkey -in www.key -pubout -out www.pem");
    let host = ["--key", "www.pem", "--subject", "CN=www.example.org", "--name", "www.example.org"];
    let issued = ["--issuer", "CN=Office", "--out", "www.tbs"];
    group.prepare("x509-cert", &[&host[..], &issued].concat());
    group.sign("x509-cert", "www.tbs", &[]);
    let verify = "openssl verify -x509_strict -purpose sslserver -CAfile ca.crt -verify_hostname";
    group.accepts(&format!("{verify} www.example.org www.crt"));
    group.refuses(&format!("{verify} other.example.org www.crt"));

    // CMS.
    let signer = ["--subject", "CN=Signer", "--purpose", "email-protection", "--out", "signer.tbs"];
    group.prepare("x509-cert", &signer);
    group.sign("x509-cert", "signer.tbs", &[]);
    fs::write(group.path("firmware"), [0, 1, 2, 0xff]).unwrap();
    group.prepare("cms", &["firmware"]);
    group.sign("cms", "firmware.tbs", &["--certificate", "signer.crt"]);
    let verify = "openssl cms -verify -binary -inform DER -CAfile signer.crt -out out -in";
    group.accepts(&format!("{verify} firmware.p7s -content firmware"));
    group.refuses(&format!("{verify} firmware.p7s -content signer.crt"));

    check_tokens_and_keys(group);

    // Bytes of one format are not registered as another's, and not as a plain file.
    let register = ["quorum", "register", "--socket", "1.api"];
    let message = error_of(place, &[&register[..], &["www.tbs"]].concat(), 2);
    assert!(message.contains("signed with --format x509-cert"), "{message}");
    let message = error_of(place, &[&register[..], &["--format", "cms", "www.tbs"]].concat(), 2);
    assert!(message.contains("signed with --format x509-cert"), "{message}");
}

fn check_tokens_and_keys(group: &Group) {
    fs::write(group.path("claims"), "{\"sub\": \"alice\"}\n").unwrap();
    for (algorithm, options) in
        [("rs256", ""), ("ps256", "-sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32 ")]
    {
        let prepared = format!("{algorithm}.tbs");
        group.prepare("jwt", &["--algorithm", algorithm, "--out", &prepared, "claims"]);
        group.sign("jwt", &prepared, &[]);
        let token = fs::read_to_string(group.path(&format!("{algorithm}.jwt"))).unwrap();
        let (input, signature) = token.rsplit_once('.').unwrap();
        let digits = signature.replace('-', "+").replace('_', "/");
        let padding = "=".repeat(digits.len().next_multiple_of(4) - digits.len());
        fs::write(group.path("digits"), digits + &padding).unwrap();
        fs::write(group.path("input"), input).unwrap();
        group.accepts("openssl base64 -d -A -in digits -out signature");
        group.accepts(&format!(
            "openssl dgst -sha256 {options}-verify made/public.pem -signature signature input"
        ));
    }
    let key = group.run(&["pubkey", "--format", "jwk", "--socket", "1.api"]);
    fs::write(group.path("key.jwk"), &key).unwrap();
    check_with_pyjwt(group.place.path());

    // The key as ssh-keygen reads it.
    if Command::new("ssh-keygen").arg("-?").output().is_err() {
        eprintln!("skipped: ssh-keygen is missing");
        return;
    }
    let line = group.run(&["pubkey", "--format", "ssh", "--socket", "1.api"]);
    fs::write(group.path("key.pub"), line).unwrap();
    let printed = group.accepts("ssh-keygen -e -m PKCS8 -f key.pub");
    assert_eq!(printed, fs::read_to_string(group.path("made/public.pem")).unwrap());
}

/// Several files, of which one is not registered; and servers that do not answer.
fn check_several_files_and_servers(group: &Group) {
    let place = group.place.path();
    fs::write(group.path("a"), "a\n").unwrap();
    fs::write(group.path("b"), "b\n").unwrap();
    for socket in ["1.api", "3.api"] {
        group.run(&["register", "--socket", socket, "a"]);
    }
    let several = ["quorum", "sign", "--socket", "none.api", "--socket", "1.api"];
    let output = sunder(place, &[&several[..], &["a", "b"]].concat());
    let printed = text(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{printed}");
    assert!(
        printed.contains("1 of 2 files are not signed") && printed.contains("b: "),
        "{printed}"
    );
    assert!(group.openssl_accepts("a") && !group.path("b.sig").exists());
    // Another group's key.
    group.accepts("openssl genrsa -out other.key 2048");
    group.accepts("openssl pkey -in other.key -pubout -out other.pem");
    let other = ["quorum", "sign", "--socket", "1.api", "--pubkey", "other.pem", "--out", "-", "a"];
    let message = error_of(place, &other, 1);
    assert!(message.contains("not by the group's key"), "{message}");
    // What is to be signed by another key is not registered in any format that names it.
    for (format, options) in [
        ("x509-csr", &["--subject", "CN=Office"][..]),
        ("openpgp", &["a"]),
        ("openpgp-key", &["--user-id", "Office <office@example.org>"]),
    ] {
        let file = format!("other-{format}.tbs");
        let begin = ["prepare", format, "--pubkey", "other.pem", "--out", &file];
        group.run(&[&begin[..], options].concat());
        let register = ["quorum", "register", "--socket", "1.api", "--format", format, &file];
        let message = error_of(place, &register, 2);
        assert!(message.contains("names another key than the group's"), "{message}");
    }
    let epochs = ["verify-epochs", "--pubkey", "made/public.pem", "--socket", "none.api"];
    let printed = group.run(&[&epochs[..], &SOCKET[..]].concat());
    assert!(printed.starts_with("epoch 1"), "{printed}");
}

fn check_with_pyjwt(place: &Path) {
    let program = "import json, jwt\nkey = jwt.PyJWK(json.load(open('key.jwk')), 'RS256').key\n\
        for name in ['RS256', 'PS256']:\n    \
        token = open(name.lower() + '.jwt').read()\n    \
        assert jwt.decode(token, key, algorithms=[name]) == {'sub': 'alice'}\n";
    let python =
        |program: &str| Command::new("python3").args(["-c", program]).current_dir(place).output();
    if python("import jwt").is_ok_and(|it| it.status.success()) {
        let output = python(program).unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
    } else {
        eprintln!("skipped: PyJWT is missing, openssl alone has verified the tokens");
    }
}

#[test]
fn gpg_and_apt_accept_documents_and_an_archive() {
    if !has(&["gpg", "gpgv", "apt-get"]) {
        return;
    }
    let (group, _servers) = group("");
    gpg_accepts_documents(&group);

    let archive = group.path("archive");
    fs::create_dir(&archive).unwrap();
    fs::write(archive.join("Packages"), "").unwrap();
    let date = group.accepts("date --utc +%a,_%d_%b_%Y_%T_UTC").replace('_', " ");
    // The SHA-256 of nothing.
    let digest = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let release = format!(
        "Suite: stable\nCodename: stable\nDate: {date}Description: -- dashes \n\
         SHA256:\n {digest} 0 Packages\n"
    );
    fs::write(archive.join("Release"), release).unwrap();
    let text_of = ["--cleartext", "--out", "InRelease.tbs", "archive/Release"];
    group.prepare("openpgp", &text_of);
    group.sign("openpgp", "InRelease.tbs", &["--out", "archive/InRelease"]);
    group.accepts("gpg --batch --dearmor --output office.gpg office.asc");
    group.accepts("gpgv --keyring ./office.gpg archive/InRelease");
    apt_update(&group, true);
    // The same with a detached signature.
    let signed = fs::read_to_string(archive.join("InRelease")).unwrap();
    fs::remove_file(archive.join("InRelease")).unwrap();
    group.prepare("openpgp", &["--out", "Release.tbs", "archive/Release"]);
    group.sign("openpgp", "Release.tbs", &["--out", "archive/Release.gpg"]);
    apt_update(&group, true);
    fs::remove_file(archive.join("Release.gpg")).unwrap();
    fs::write(archive.join("InRelease"), signed.replace("Suite: stable", "Suite: sid")).unwrap();
    apt_update(&group, false);
}

/// The first and the third server sign. Their RSA key may be shared in any way.
pub(super) fn gpg_accepts_documents(group: &Group) {
    group.import_key();
    fs::write(group.path("notes"), [b'a', 0, 0xff, b'\n']).unwrap();
    group.prepare("openpgp", &["notes"]);
    group.sign("openpgp", "notes.tbs", &[]);
    group.accepts("gpg --batch --no-autostart --verify notes.asc notes");
    group.refuses("gpg --batch --no-autostart --verify notes.asc office.asc");
}

/// Whether apt accepts the archive. It has a root of its own.
fn apt_update(group: &Group, is_accepted: bool) {
    let root = group.path("root");
    let _ = fs::remove_dir_all(&root);
    for folder in ["etc/apt/apt.conf.d", "etc/apt/preferences.d", "var/lib/apt/lists/partial"] {
        fs::create_dir_all(root.join(folder)).unwrap();
    }
    fs::create_dir_all(root.join("var/cache/apt/archives/partial")).unwrap();
    fs::write(root.join("status"), "").unwrap();
    let at = group.place.path().display();
    let source = format!("deb [signed-by={at}/office.asc] file:{at}/archive ./\n");
    fs::write(root.join("etc/apt/sources.list"), source).unwrap();
    let output = Command::new("apt-get")
        .args(["update", "-o", &format!("Dir={at}/root"), "-o"])
        .arg(format!("Dir::State::status={at}/root/status"))
        .args(["-o", "APT::Sandbox::User=root", "-o", "Acquire::Languages=none"])
        .output()
        .unwrap();
    let printed = text(&[output.stdout, output.stderr].concat());
    let is_clean = !printed.contains("\nE:") && !printed.contains("\nW:");
    assert_eq!(output.status.success() && is_clean, is_accepted, "{printed}");
}

#[test]
fn git_signs_tags_by_a_rule_and_gpg_verifies_them() {
    if !has(&["gpg", "git"]) {
        return;
    }
    let rules = "[[rule]]\nformat = \"openpgp\"\nprefix = \"object \"\n\
                 [[rule]]\nformat = \"json\"\nfields = [\"type=release\", \"version=*\"]\n";
    let (group, _servers) = group(rules);
    let place = group.place.path();
    group.import_key();
    let script = format!(
        "#!/bin/sh\nexec {} quorum git-sign --pubkey {place}/made/public.pem \
         --socket {place}/1.api -- \"$@\"\n",
        env!("CARGO_BIN_EXE_sunder"),
        place = place.display()
    );
    fs::write(group.path("office-sign"), script).unwrap();
    fs::set_permissions(group.path("office-sign"), fs::Permissions::from_mode(0o755)).unwrap();
    group.accepts("git init -q work");
    let program = format!("gpg.program={}/office-sign", place.display());
    let git = |arguments: &str| {
        let begin = "git -C work -c user.name=Office -c user.email=office@example.org -c";
        format!("{begin} {program} {arguments}")
    };
    group.accepts(&git("commit -q --allow-empty -m first"));
    group.accepts(&git("tag -s -m release v1.0"));
    let printed = group.accepts(&git("verify-tag v1.0"));
    assert!(printed.contains("Good signature from \"Office <office@example.org>\""), "{printed}");
    // The rule is for tags alone.
    group.refuses(&git("commit -q --allow-empty -S -m second"));

    // A tag that is signed after it was made.
    group.accepts(&git("tag -a -m release v1.1"));
    fs::write(group.path("tag"), group.tool("git -C work cat-file tag v1.1").stdout).unwrap();
    group.prepare("git", &["tag"]);
    group.sign("git", "tag.tbs", &[]);
    let both = [fs::read(group.path("tag")), fs::read(group.path("tag.asc"))].map(Result::unwrap);
    fs::write(group.path("signed"), both.concat()).unwrap();
    let object = group.accepts("git -C work hash-object -t tag -w ../signed");
    group.accepts(&format!("git -C work update-ref refs/tags/v1.1 {}", object.trim()));
    group.accepts(&git("verify-tag v1.1"));

    // Without a rule: the commit is registered.
    let commit = group.tool("git -C work cat-file commit HEAD").stdout;
    fs::write(group.path("commit"), commit).unwrap();
    group.prepare("git", &["commit"]);
    group.sign("git", "commit.tbs", &[]);
    group.accepts("gpg --batch --no-autostart --verify commit.asc commit");
    let message = error_of(
        place,
        &["quorum", "prepare", "git", "--pubkey", "made/public.pem", "office.asc"],
        2,
    );
    assert!(message.contains("not a commit or tag of git"), "{message}");

    // The rule for JSON.
    fs::write(group.path("allowed"), "{\"version\": \"1.0\", \"type\": \"release\"}").unwrap();
    fs::write(group.path("more"), "{\"version\": \"1.0\", \"type\": \"release\", \"a\": 1}")
        .unwrap();
    group.run(&[&["sign"], &SOCKET[..], &["allowed"]].concat());
    assert!(group.openssl_accepts("allowed"));
    error_of(place, &[&["quorum", "sign"], &SOCKET[..], &["more"]].concat(), 3);
}
