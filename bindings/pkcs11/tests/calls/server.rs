//! A server of a quorum that answers as `sunder quorum node` does, and signs with `openssl`.

use std::fs;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;

use tempfile::TempDir;

/// The message that the server refuses to sign.
pub(crate) const REFUSED: &[u8] = b"refused";

/// The message whose signature is wrong.
pub(crate) const FORGED: &[u8] = b"forged";

/// The message whose signature is in another encoding than the one that was asked for.
pub(crate) const OTHERWISE: &[u8] = b"otherwise encoded";

/// The length of messages that the server does not read to their end.
pub(crate) const UNREAD_LEN: usize = 1 << 20;

/// A server, whose files are removed when this is dropped.
pub(crate) struct SigningServer {
    place: TempDir,
}

impl SigningServer {
    /// Starts a server, in threads that run until the process ends.
    pub(crate) fn start() -> Self {
        let place = tempfile::tempdir().unwrap();
        openssl(place.path(), "genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key");
        openssl(place.path(), "pkey -in key -pubout -out public");
        let server = Self { place };
        let listener = UnixListener::bind(server.socket()).unwrap();
        let place = server.path().to_owned();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let place = place.clone();
                thread::spawn(move || answer(stream.unwrap(), &place));
            }
        });
        server
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("api")
    }

    pub(crate) fn path(&self) -> &Path {
        self.place.path()
    }
}

/// Runs `openssl` in a folder, and returns what it prints.
pub(crate) fn openssl(place: &Path, arguments: &str) -> Vec<u8> {
    let output =
        Command::new("openssl").args(arguments.split(' ')).current_dir(place).output().unwrap();
    assert!(output.status.success(), "{arguments}: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

/// Answers one request of HTTP.
fn answer(mut stream: UnixStream, place: &Path) {
    let mut request = Vec::new();
    let head_len = loop {
        let mut byte = [0; 1];
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        request.push(byte[0]);
        if request.ends_with(b"\r\n\r\n") {
            break request.len();
        }
    };
    let head = String::from_utf8(request[..head_len].to_vec()).unwrap();
    let len = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; len.map_or(0, |len| len.parse().unwrap())];
    if body.len() == UNREAD_LEN {
        // What the client still writes has no reader. What it has written is taken, so that the
        // client goes on.
        stream.shutdown(Shutdown::Read).unwrap();
        let _ = stream.read_to_end(&mut body);
        return;
    }
    stream.read_exact(&mut body).unwrap();
    let (status, answer) = match head.split(' ').nth(1).unwrap() {
        "/v1/public-key" => ("200 OK", fs::read(place.join("public")).unwrap()),
        "/v1/health" => ("200 OK", HEALTH.as_bytes().to_vec()),
        _ if body == REFUSED => ("403 Forbidden", b"{\"error\":\"not registered\"}".to_vec()),
        path => ("200 OK", sign(place, path, &body)),
    };
    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n", answer.len());
    // The client may have gone away.
    let _ = stream.write_all(&[head.as_bytes(), &answer].concat());
}

const HEALTH: &str = r#"{"ok":true,"problem":"","problem_s":null,"epoch":1,"height":1,
    "waiting_s":null,"connected":3,"needed":1}"#;

/// The options of `openssl` for PSS as servers sign with it.
const PSS: &str = "-sha256 -sigopt rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32";

fn sign(place: &Path, path: &str, message: &[u8]) -> Vec<u8> {
    let own = tempfile::tempdir_in(place).unwrap();
    let signed = if message == FORGED { b"another" } else { message };
    fs::write(own.path().join("message"), signed).unwrap();
    let options = match path.split('=').nth(1).unwrap() {
        "pkcs1" if message == OTHERWISE => PSS,
        "pss" | "pkcs1-sha512" if message == OTHERWISE => "-sha256",
        "pkcs1" => "-sha256",
        "pkcs1-sha512" => "-sha512",
        "pss" => PSS,
        other => panic!("{other}"),
    };
    openssl(own.path(), &format!("dgst {options} -sign ../key message"))
}
