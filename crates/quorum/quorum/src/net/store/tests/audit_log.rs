//! The audit log.

use super::*;
use crate::net::api::ApiCaller;

fn audit_file(place: &TempDir) -> PathBuf {
    place.path().join("audit.log")
}

#[test]
fn the_audit_log_is_a_chain() {
    let place = TempDir::new().unwrap();
    let (mut store, _) = with_epoch(&place, 1);
    store
        .record(
            &AuditEvent::refused("sign", &"long\n".repeat(1000), 3, None, ApiCaller::default()),
            NOW,
        )
        .unwrap();
    let later = NOW + Duration::from_millis(1500);
    store
        .save(&[SavedStateChange::End { epoch: 1 }], &mut RandomGenerator::system(), later)
        .unwrap();
    let last = store.audit().last().clone();
    drop(store);
    let path = audit_file(&place);
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().unwrap()).collect();
    assert_eq!(events, ["opened", "epoch-begun", "refused", "epoch-ended"]);
    assert_eq!(lines[3]["time"], "1970-01-01T00:00:01.500Z");
    assert_eq!(lines[3]["previous"], lines[2]["hash"]);
    assert_eq!(lines[3]["hash"], last.hash.as_str());
    let (verified, len) = audit::verify(text.as_bytes(), &path).unwrap();
    assert_eq!((verified, len), (Some(last), text.len() as u64));

    // Every change of a byte is found, and every removed line but the first and the last.
    for index in 0..text.len() - 1 {
        let mut changed = text.clone().into_bytes();
        changed[index] ^= 1;
        let result = audit::verify(&changed[..], &path);
        assert!(matches!(result, Err(QuorumStoreError::BrokenChain { .. })), "byte {index}");
    }
    let without = |line: usize| {
        let lines = text.split_inclusive('\n').enumerate().filter(|(index, _)| *index != line);
        lines.map(|(_, line)| line).collect::<String>()
    };
    for line in [1, 2] {
        let result = audit::verify(without(line).as_bytes(), &path);
        assert!(
            matches!(result, Err(QuorumStoreError::BrokenChain { line: found, .. }) if found == line + 1)
        );
    }
    fs::write(&path, without(2)).unwrap();
    let error = open(&place).unwrap_err().to_string();
    assert!(error.contains("audit.log, line 3: the chain of hashes is broken"), "{error}");
}

#[test]
fn a_line_that_a_crash_left_incomplete_is_removed() {
    let place = TempDir::new().unwrap();
    let (store, _) = with_epoch(&place, 1);
    let last = store.audit().last().clone();
    drop(store);
    let path = audit_file(&place);
    let whole = fs::read(&path).unwrap();
    for cut in [1, 20] {
        fs::write(&path, [&whole[..], &whole[..cut]].concat()).unwrap();
        assert_eq!(*open(&place).unwrap().audit().last(), last);
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    // What a power cut left: the file's length, and not all that was written last.
    for (cut, zeros) in [(0, 1), (0, 5000), (20, 4076), (20, 4077), (20, 70_000)] {
        fs::write(&path, [&whole[..], &whole[..cut], &vec![0; zeros]].concat()).unwrap();
        assert_eq!(*open(&place).unwrap().audit().last(), last, "{zeros} zeros");
        assert_eq!(fs::read(&path).unwrap(), whole);
    }
    // Zeros before something else are a change.
    fs::write(&path, [&whole[..], &vec![0; 70_000], b"{\n"].concat()).unwrap();
    assert!(matches!(open(&place).unwrap_err(), QuorumStoreError::BrokenChain { .. }));
    // A line that does not end is no such line.
    fs::write(&path, [&whole[..], &[b'a'; 5000]].concat()).unwrap();
    assert!(matches!(open(&place).unwrap_err(), QuorumStoreError::BrokenChain { .. }));
}

#[test]
fn a_full_audit_log_is_continued_in_another_file() {
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    store.set_max_audit_len(2_000);
    let first = store.audit().last().clone();
    store.record(&AuditEvent::EpochEnded { epoch: 1 }, NOW).unwrap();
    let second = store.audit().last().clone();
    drop(store);
    let full = fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().file_name());
    let full = full.filter(|name| name.to_string_lossy().starts_with("audit-"));
    assert_eq!(full.collect::<Vec<_>>(), ["audit-1.log"]);
    let text = fs::read_to_string(audit_file(&place)).unwrap();
    assert!(text.contains(&format!("\"previous\":\"{}\"", first.hash)));
    assert_eq!(*open(&place).unwrap().audit().last(), second);
    // A crash before the first line of the new file.
    fs::write(audit_file(&place), "").unwrap();
    assert_eq!(*open(&place).unwrap().audit().last(), first);
}

#[test]
fn the_oldest_files_are_removed_and_the_chain_goes_on() {
    const MAX_LEN: u64 = 64 << 10;
    let place = TempDir::new().unwrap();
    let mut store = open(&place).unwrap();
    store.set_max_audit_len(MAX_LEN);
    let files = || {
        let files = fs::read_dir(place.path()).unwrap().map(|file| file.unwrap().path());
        let number = |path: &PathBuf| {
            let name = path.file_name().unwrap().to_str().unwrap();
            let number = name.strip_prefix("audit-")?.strip_suffix(".log")?;
            number.parse::<u64>().ok()
        };
        let mut full: Vec<_> = files.filter_map(|path| Some((number(&path)?, path))).collect();
        full.sort_unstable();
        full.into_iter().map(|(_, path)| path).chain([audit_file(&place)]).collect::<Vec<_>>()
    };
    for epoch in 0..2_000 {
        store.record(&AuditEvent::EpochEnded { epoch }, NOW).unwrap();
        let len: u64 = files().iter().map(|path| fs::metadata(path).unwrap().len()).sum();
        assert!(len < MAX_LEN + (2 << 10), "{len}");
    }
    let (files, last) = (files(), store.audit().last().clone());
    assert!(files.len() >= 15, "{files:?}");
    let all: Vec<u8> = files.iter().flat_map(|path| fs::read(path).unwrap()).collect();
    let (verified, _) = audit::verify(&all[..], Path::new("all")).unwrap();
    assert_eq!(verified, Some(last));
    let text = String::from_utf8(all).unwrap();
    let first: serde_json::Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
    let removed = text.lines().rfind(|line| line.contains("\"removed\"")).unwrap();
    let removed: serde_json::Value = serde_json::from_str(removed).unwrap();
    assert_eq!(removed["through"].as_u64().unwrap() + 1, first["number"].as_u64().unwrap());
}
