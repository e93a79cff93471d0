//! Programs sign with a quorum through the PKCS #11 module.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use super::group::{Group, Server};

/// The module, which cargo builds beside this program.
pub(super) fn module() -> PathBuf {
    // The tests depend on it.
    let _: unsafe extern "C" fn(_) -> _ = pkcs11::C_GetFunctionList;
    std::env::current_exe().unwrap().with_file_name("libsunder_pkcs11.so")
}

pub(super) fn has(tool: &str) -> bool {
    let is_there = Command::new(tool).arg("--help").output().is_ok();
    if !is_there {
        eprintln!("SKIPPED: {tool} is not installed");
    }
    is_there
}

/// Runs a script of the shell, in which MODULE is the module and `sockets` are those of the quorum.
/// Returns whether it succeeds, and what it prints.
fn shell(place: &Path, sockets: &str, script: &str) -> (bool, String) {
    let output = Command::new("sh")
        .args(["-e", "-c", &format!("{{ {script}\n}} 2>&1")])
        .current_dir(place)
        .env("MODULE", module())
        .env("SUNDER_PKCS11_SOCKET", sockets)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn pkcs11_tool_signs_with_a_quorum() {
    if !has("pkcs11-tool") {
        return;
    }
    let group = Group::new(4);
    let _servers: Vec<Server> = (1..=4).map(|number| group.start(number)).collect();
    group.wait_until_healthy(1..=4);
    pkcs11_tool_signs(&group);
    openssl_asks_for_digests(&group);
}

/// The first two servers sign. Their RSA key may be shared in any way.
pub(super) fn pkcs11_tool_signs(group: &Group) {
    let place = group.place.path();
    fs::write(group.path("message"), "message\n").unwrap();
    for socket in ["1.api", "2.api"] {
        group.run(&["register", "--socket", socket, "message"]);
    }
    let (succeeds, printed) = shell(place, "1.api", "pkcs11-tool --module $MODULE -L -M -O");
    assert!(succeeds, "{printed}");
    for expected in [
        "token label        : quorum",
        "Private Key Object; RSA",
        "Public Key Object; RSA 2048 bits",
        "sensitive, always sensitive, never extractable",
        "SHA256-RSA-PKCS, keySize={1024,4096}, sign",
        "SHA512-RSA-PKCS, keySize={1024,4096}, sign",
        "SHA256-RSA-PKCS-PSS, keySize={1024,4096}, sign",
    ] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    // A server that is not there is passed over.
    let sign = "rm -f signature; pkcs11-tool --module $MODULE --sign -i message -o signature";
    for (mechanism, options) in [
        ("SHA256-RSA-PKCS", "-sha256"),
        ("SHA512-RSA-PKCS", "-sha512"),
        ("SHA256-RSA-PKCS-PSS", "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32"),
    ] {
        let script = format!(
            "{sign} -m {mechanism}
            openssl dgst {options} -verify made/public.pem -signature signature message"
        );
        let (succeeds, printed) = shell(place, "missing:1.api", &script);
        assert!(succeeds && printed.ends_with("Verified OK\n"), "{printed}{}", group.logs());
    }
    // What is not registered; a digest; a message that is too long: each with its reason.
    fs::write(group.path("other"), "other\n").unwrap();
    fs::write(group.path("long"), vec![0; (1 << 20) + 1]).unwrap();
    fs::write(group.path("digest"), [7; 51]).unwrap();
    for (sockets, change, expected) in [
        ("1.api:2.api", "-i other -m SHA256-RSA-PKCS", "the message is not registered here"),
        ("1.api", "-i digest -m RSA-PKCS", "servers sign whole messages only"),
        ("1.api", "-i long -m SHA256-RSA-PKCS", "more than"),
        ("missing", "-i message -m SHA256-RSA-PKCS", "no server answers at missing"),
    ] {
        let (succeeds, printed) = shell(place, sockets, &format!("{sign} {change}"));
        assert!(!succeeds && printed.contains(expected), "{change}: {printed}");
    }
    java_signs(group);
}

/// OpenSSL's engine, and so osslsigncode, hands digests to a module. The user learns why it fails.
fn openssl_asks_for_digests(group: &Group) {
    let place = group.place.path();
    let (is_there, _) =
        shell(place, "1.api", "MODULE= openssl engine -t pkcs11 | grep -q available");
    if !is_there {
        eprintln!("SKIPPED: libengine-pkcs11-openssl is not installed");
        return;
    }
    let script = "PKCS11_MODULE_PATH=$MODULE openssl dgst -sha256 -engine pkcs11 -keyform engine \
                  -sign 'pkcs11:token=quorum;type=private' -out signature message";
    let (succeeds, printed) = shell(place, "1.api", script);
    assert!(!succeeds && printed.contains("servers sign whole messages only"), "{printed}");
}

/// The program of the guide, which finds the key by its certificate.
fn java_signs(group: &Group) {
    if !has("java") || !has("javac") {
        return;
    }
    let guide = include_str!("../../../../../../docs/guides/quorum-programs.md");
    let program = guide.split("```java\n").nth(1).unwrap().split("```").next().unwrap();
    fs::write(group.path("Sign.java"), program).unwrap();
    // A certificate of the group's key, by an authority that `openssl` makes.
    let script = "
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -out ca.pem -subj /CN=authority
        openssl req -new -key ca.key -subj /CN=office -out office.req
        openssl x509 -req -in office.req -force_pubkey made/public.pem -CA ca.pem -CAkey ca.key \
            -set_serial 7 -days 2 -out office.pem
        cat office.pem ca.pem >certificates.pem
        printf '[[quorum]]\nlabel = \"office\"\nsockets = [\"1.api\"]\n' >pkcs11.toml
        printf 'certificate = \"certificates.pem\"\n' >>pkcs11.toml
        printf 'name = sunder\nlibrary = %s\n' $MODULE >sunder.cfg
        unset SUNDER_PKCS11_SOCKET
        export SUNDER_PKCS11_CONFIG=$PWD/pkcs11.toml
        keytool -list -storetype PKCS11 -storepass none -addprovider SunPKCS11 \
            -providerArg sunder.cfg
        java Sign.java sunder.cfg message message.java
        openssl dgst -sha256 -verify made/public.pem -signature message.java message
        mv ca.pem certificates.pem
        ! java Sign.java sunder.cfg message none";
    let (succeeds, printed) = shell(group.place.path(), "", script);
    assert!(succeeds && printed.contains("PrivateKeyEntry"), "{printed}{}", group.logs());
    assert!(printed.contains("Verified OK"), "{printed}");
    assert!(printed.contains("certificates.pem is not of the quorum's key"), "{printed}");
}
