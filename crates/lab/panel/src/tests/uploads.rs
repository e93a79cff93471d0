//! Folders and archives with scripts: as a person uploads them, and as an attacker does.

use std::io::Write as _;

use base64ct::{Base64, Encoding as _};
use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, EntryType, Header};

use super::*;
use crate::request::RunRequest;

const SCRIPTS: [(&str, &str); 2] = [("pair/web-server.sh", "exit"), ("pair/web-client.sh", "exit")];

/// A request for the scripts in an archive.
pub(super) fn upload(archive: &[u8]) -> Value {
    let folder = json!({ "name": "pair.tar", "base64": Base64::encode_string(archive) });
    let values = json!({
        "folder": [folder], "transport": ["tcp"], "delay_ms": [5], "loss": [0],
        "rate_mbit": [100], "back_mbit": [100],
    });
    json!({ "template": "scripts", "values": values })
}

fn header(length: u64, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(length);
    header.set_entry_type(kind);
    header
}

/// An archive with a pair of scripts, to which more is added.
pub(super) fn pair_with(add: impl FnOnce(&mut Builder<Vec<u8>>)) -> Vec<u8> {
    let mut archive = Builder::new(Vec::new());
    for (path, text) in SCRIPTS {
        let mut header = header(text.len() as u64, EntryType::Regular);
        archive.append_data(&mut header, path, text.as_bytes()).unwrap();
    }
    add(&mut archive);
    archive.into_inner().unwrap()
}

fn pair() -> Vec<u8> {
    pair_with(|_| {})
}

/// Adds an entry whose path is not checked.
fn add_at(archive: &mut Builder<Vec<u8>>, path: &str, kind: EntryType, link: &str) {
    let mut header = header(0, kind);
    header.as_old_mut().name[..path.len()].copy_from_slice(path.as_bytes());
    header.as_old_mut().linkname[..link.len()].copy_from_slice(link.as_bytes());
    header.set_cksum();
    archive.append(&header, std::io::empty()).unwrap();
}

fn compressed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A small archive that unpacks to 300 MiB.
fn bomb() -> Vec<u8> {
    let mut header = header(300 << 20, EntryType::Regular);
    header.set_path("pair/zeros").unwrap();
    header.set_cksum();
    let zeros = compressed(&vec![0; 1 << 20]);
    let begin = [&pair()[..pair().len() - 1024], header.as_bytes()].concat();
    [compressed(&begin), zeros.repeat(300)].concat()
}

/// The part of a request that is refused, and why.
fn refusal(request: &Value) -> (String, String) {
    let request: RunRequest = serde_json::from_value(request.clone()).unwrap();
    let Err(refused) = request.experiment(ScriptIsolation::Sandbox) else {
        panic!("it is accepted")
    };
    assert!(!refused.why.contains('\n') && refused.why.len() < 200, "{}", refused.why);
    (refused.field, refused.why)
}

#[tokio::test]
async fn an_archive_takes_the_place_of_the_scripts_and_is_of_its_run_only() {
    let panel = TestPanel::new(MEASURES);
    for archive in [pair(), compressed(&pair())] {
        let (status, document) = panel.call("POST", "/api/runs", &upload(&archive)).await;
        assert_eq!(status, StatusCode::CREATED, "{document}");
        let id = document["id"].as_str().unwrap();
        let directory = panel.directory.path().join("runs").join(id);
        assert_eq!(fs::read(directory.join("scripts.archive")).unwrap(), archive);
        let text = fs::read_to_string(directory.join("scripts.toml")).unwrap();
        assert!(text.contains("scripts = \"scripts.archive\""), "{text}");
        assert!(text.contains("contain = true") && !text.contains("pair-server.sh"), "{text}");
        // What is kept of it in the request is not its content.
        let path = format!("/api/runs/{id}");
        let kept = panel.get(&path).await["request"]["values"]["folder"].clone();
        assert_eq!(
            (&kept[0]["name"], &kept[0]["bytes"]),
            (&json!("pair.tar"), &json!(archive.len()))
        );
        assert!(kept[0].get("base64").is_none(), "{kept}");
        let file = format!("{path}/files/scripts.archive");
        assert_eq!(panel.call("GET", &file, &Value::Null).await.0, StatusCode::NOT_FOUND);
        panel.work_until(&path, "finished").await;
        assert_eq!(panel.call("DELETE", &path, &Value::Null).await.0, StatusCode::NO_CONTENT);
        assert!(!directory.exists());
    }
}

#[test]
fn an_archive_that_leads_out_of_its_folder_is_refused_with_the_reason() {
    let cases: [(&str, EntryType, &str, &str); 7] = [
        ("pair/link", EntryType::Symlink, "/etc/shadow", "pair/link: leads to /etc/shadow"),
        ("pair/link", EntryType::Symlink, "../../x", "pair/link: leads to ../../x"),
        ("/etc/passwd", EntryType::Regular, "", "/etc/passwd: is a path from /"),
        ("../../run", EntryType::Regular, "", "../../run: leaves the folder"),
        ("pair/disk", EntryType::Block, "", "pair/disk: is a device or a pipe"),
        ("pair/pipe", EntryType::Fifo, "", "pair/pipe: is a device or a pipe"),
        ("pair/other", EntryType::Link, "../../etc/shadow", "leaves the folder"),
    ];
    for (path, kind, link, expected) in cases {
        let archive = pair_with(|archive| add_at(archive, path, kind, link));
        let (field, why) = refusal(&upload(&archive));
        assert_eq!(field, "folder");
        assert!(why.contains(expected), "{why}");
    }
}

#[test]
fn an_archive_that_is_too_large_or_unpacks_to_too_much_is_refused() {
    let mut long = pair();
    long.resize((8 << 20) + 1, 0);
    let (field, why) = refusal(&upload(&long));
    assert_eq!((field.as_str(), why.contains("at most 8388608")), ("folder", true), "{why}");
    let bomb = bomb();
    assert!(bomb.len() < 4 << 20, "{}", bomb.len());
    assert!(refusal(&upload(&bomb)).1.contains("its files may have 256 MiB"));
    let many = pair_with(|archive| {
        for number in 0..17_000 {
            add_at(archive, &format!("pair/{number}"), EntryType::Regular, "");
        }
    });
    assert!(refusal(&upload(&compressed(&many))).1.contains("16384 files"));
}

#[test]
fn what_is_no_archive_with_one_pair_of_scripts_is_refused() {
    assert!(refusal(&upload(b"exit")).1.contains("neither a folder nor an archive"));
    assert!(refusal(&upload(&[])).1.contains("neither a folder nor an archive"));
    assert!(refusal(&upload(&compressed(b"exit"))).1.contains("archive"));
    let empty = Builder::new(Vec::new()).into_inner().unwrap();
    refusal(&upload(&empty));
    let mut cut = pair();
    cut.truncate(700);
    refusal(&upload(&cut));
    let more = pair_with(|archive| {
        for name in ["pair/b-server.sh", "pair/b-client.sh"] {
            add_at(archive, name, EntryType::Regular, "");
        }
    });
    assert!(refusal(&upload(&more)).1.contains("several pairs: b, web"));
    let other = json!([{ "name": "a.sh", "text": "exit" }]);
    let mut both = upload(&pair());
    both["values"]["server_script"] = other.clone();
    assert_eq!(refusal(&both).0, "server_script");
    for folder in [
        other,
        json!([{ "name": "a.tar", "base64": "%%%%" }]),
        json!([{ "name": "a.tar", "base64": "YWJj", "path": "/etc" }]),
        json!([{ "name": "", "base64": "YWJj" }]),
        json!([{ "name": "a.tar", "bytes": 3, "sha256": "00" }]),
        json!(["/etc"]),
        json!([{ "name": "a", "base64": "" }, { "name": "b", "base64": "" }]),
    ] {
        let mut request = upload(&pair());
        request["values"]["folder"] = folder;
        assert_eq!(refusal(&request).0, "folder");
    }
}
