//! Backups.

use super::*;

#[test]
fn a_backup_can_be_restored_while_its_epoch_lasts() {
    let place = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let backup = elsewhere.path().join("backup");
    let (mut store, epoch) = with_epoch(&place, 1);
    register(&mut store, b"message", 0).unwrap();
    // The store is open.
    assert_eq!(QuorumStore::back_up(place.path(), &backup).unwrap(), [1]);
    let again = QuorumStore::back_up(place.path(), &backup).unwrap_err();
    assert!(matches!(again, QuorumStoreError::BackupExists { .. }), "{again}");
    let key = fs::read(place.path().join("epoch-1.key")).unwrap();
    let windows = windows(elsewhere.path());
    assert_eq!(found(&key[8..], &windows), 0, "the backup has no key");
    drop(store);

    fs::remove_file(place.path().join("epochs.sqlite")).unwrap();
    let missing = open(&place).unwrap_err();
    assert!(matches!(missing, QuorumStoreError::DatabaseMissing { number: 1 }), "{missing}");
    QuorumStore::restore(place.path(), master(1), &backup, NOW).unwrap();
    let mut store = open(&place).unwrap();
    assert_same(&load(&store, 1).unwrap(), &epoch);
    // It may have been withdrawn since.
    assert_eq!(store.registered_count().unwrap(), 0);

    begin(&mut store, &self::epoch(2)).unwrap();
    drop(store);
    let lacks = QuorumStore::restore(place.path(), master(1), &backup, NOW).unwrap_err();
    assert!(matches!(lacks, QuorumStoreError::BackupLacks { number: 2 }), "{lacks}");
    let mut store = open(&place).unwrap();
    end(&mut store, 1);
    drop(store);
    let expired = QuorumStore::restore(place.path(), master(1), &backup, NOW).unwrap_err();
    assert!(matches!(expired, QuorumStoreError::BackupExpired { number: 1 }), "{expired}");
    assert_eq!(open(&place).unwrap().epochs().unwrap(), [2]);
}

#[test]
fn removed_store_files_are_reported() {
    let place = TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name);
    let (store, _) = with_epoch(&place, 1);
    fs::write(at(LOG_FILE), "log").unwrap();
    let free = store.problem().filter(|problem| !problem.contains("KiB are free"));
    assert_eq!(free, None);
    for name in ["epochs.sqlite", "audit.log", LOG_FILE, "epoch-1.key"] {
        fs::rename(at(name), at("elsewhere")).unwrap();
        let problem = store.problem().unwrap_or_default();
        let named = if name == "epoch-1.key" { "the file of the key of epoch 1" } else { name };
        assert!(
            problem.starts_with(named) && problem.contains("while the server runs"),
            "{problem}"
        );
        if name != "epoch-1.key" {
            fs::copy(at("elsewhere"), at(name)).unwrap();
            let copied = store.problem().unwrap_or_default();
            assert!(copied.starts_with(name), "a copy is another file: {copied}");
        }
        fs::rename(at("elsewhere"), at(name)).unwrap();
    }
    fs::rename(place.path(), place.path().with_extension("moved")).unwrap();
    let problem = store.problem().unwrap();
    assert!(problem.contains("was removed while the server runs"), "{problem}");
    fs::rename(place.path().with_extension("moved"), place.path()).unwrap();
}

/// Each state that a server saves has as many entries as heights; so has a copy.
#[test]
fn backup_during_writes_is_one_consistent_state() {
    let place = TempDir::new().unwrap();
    let elsewhere = TempDir::new().unwrap();
    let (mut store, _) = with_epoch(&place, 1);
    let is_done = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for height in 2..=300 {
                let entries = vec![vec![7; 20_000].into()];
                save(&mut store, &[SavedStateChange::Applied { height: Height(height), entries }])
                    .unwrap();
                if is_done.load(order) {
                    return;
                }
            }
        });
        for number in 0..10 {
            let backup = elsewhere.path().join(format!("{number}"));
            assert_eq!(QuorumStore::back_up(place.path(), &backup).unwrap(), [1]);
            let copy = Connection::open(&backup).unwrap();
            let count = |query| copy.query_row(query, [], |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(count("SELECT height FROM state"), count("SELECT count(*) FROM entry"));
            let result: String =
                copy.query_row("PRAGMA integrity_check", [], |row| row.get(0)).unwrap();
            assert_eq!(result, "ok");
        }
        is_done.store(true, order);
    });
    let none = QuorumStore::back_up(elsewhere.path(), &elsewhere.path().join("none")).unwrap_err();
    assert!(matches!(none, QuorumStoreError::NoStore { .. }), "{none}");
    assert!(!elsewhere.path().join("none").exists());
}

#[test]
fn invalid_backups_are_rejected() {
    let (place, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    drop(with_epoch(&place, 1));
    let backup = other.path().join("backup");
    let refuse = |content: &[u8]| {
        fs::write(&backup, content).unwrap();
        let error =
            QuorumStore::restore(place.path(), master(1), &backup, NOW).unwrap_err().to_string();
        assert_eq!(error.lines().count(), 1);
        assert!(!place.path().join("restored.sqlite").exists());
    };
    refuse(b"");
    refuse(&b"something else".repeat(1000));
    // Another server's, of the same epoch.
    drop(with_epoch(&other, 1));
    fs::remove_file(&backup).unwrap();
    QuorumStore::back_up(other.path(), &backup).unwrap();
    let whole = fs::read(&backup).unwrap();
    refuse(&whole);
    refuse(&whole[..whole.len() / 2]);
    load(&open(&place).unwrap(), 1).unwrap();
}

#[test]
fn a_backup_without_a_store_to_restore_leaves_nothing_behind() {
    let place = TempDir::new().unwrap();
    let missing = place.path().join("mistyped");
    let error =
        QuorumStore::restore(&missing, master(1), &place.path().join("backup"), NOW).unwrap_err();
    assert!(error.to_string().contains("is not a store"), "{error}");
    assert!(!missing.exists());
}
