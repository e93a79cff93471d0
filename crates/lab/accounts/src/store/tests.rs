//! Accounts as people, administrators and attackers use them.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use super::*;

const NOW: u64 = 1_800_000_000;
const HASH: &str = "a hash";

struct TestStore {
    store: AccountStore,
    folder: tempfile::TempDir,
}

impl TestStore {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        Self { store: AccountStore::open(folder.path()).unwrap(), folder }
    }

    /// An account with a password.
    fn joined(&mut self, name: &str) -> Account {
        let secret = self.store.invite(&named(name), NOW).unwrap();
        self.store.accept(secret.as_str(), HASH, NOW).unwrap().unwrap()
    }

    fn signed_in(&mut self, account: &Account) -> String {
        let secret = self.store.begin_session(account.id, HASH, NOW).unwrap().unwrap();
        secret.as_str().to_owned()
    }

    fn is_live(&self, session: &str) -> bool {
        self.store.account_of(session, NOW).unwrap().is_some()
    }
}

fn named(name: &str) -> AccountName {
    name.parse().unwrap()
}

#[test]
fn an_invitation_is_accepted_once_and_in_time() {
    let mut test = TestStore::new();
    let first = test.store.invite(&named("alice"), NOW).unwrap();
    let second = test.store.invite(&named("alice"), NOW).unwrap();
    // The second one replaces the first.
    assert_eq!(test.store.invited(first.as_str(), NOW).unwrap(), None);
    assert_eq!(test.store.accept(first.as_str(), HASH, NOW).unwrap(), None);
    let late = NOW + INVITATION_VALIDITY_S;
    assert_eq!(test.store.invited(second.as_str(), late).unwrap(), None);
    assert_eq!(test.store.accept(second.as_str(), HASH, late).unwrap(), None);
    let invited = test.store.invited(second.as_str(), late - 1).unwrap().unwrap();
    assert_eq!(test.store.accept(second.as_str(), HASH, NOW).unwrap(), Some(invited));
    assert_eq!(test.store.accept(second.as_str(), "other", NOW).unwrap(), None);
    let (_, hash) = test.store.find(&named("alice")).unwrap().unwrap();
    assert_eq!(hash.as_deref(), Some(HASH));
}

#[test]
fn sessions_end_by_time_logout_a_new_password_and_removal() {
    let mut test = TestStore::new();
    let (alice, bob) = (test.joined("alice"), test.joined("bob"));
    let [ended, kept] = [test.signed_in(&alice), test.signed_in(&alice)];
    let of_bob = test.signed_in(&bob);
    assert_eq!(test.store.account_of(&kept, NOW).unwrap().as_ref(), Some(&alice));
    assert_eq!(test.store.account_of(&kept, NOW + SESSION_VALIDITY_S).unwrap(), None);
    test.store.end_session(&ended).unwrap();
    assert!(!test.is_live(&ended) && test.is_live(&kept));
    // By the person, and by an invitation of the administrator.
    assert!(!test.store.change_password(alice.id, "wrong", "new").unwrap());
    assert!(test.is_live(&kept));
    assert!(test.store.change_password(alice.id, HASH, "new").unwrap());
    assert!(!test.is_live(&kept) && test.is_live(&of_bob));
    assert!(test.store.begin_session(alice.id, HASH, NOW).unwrap().is_none());
    let alice = test.joined("alice");
    let again = test.signed_in(&alice);
    test.joined("alice");
    assert!(!test.is_live(&again));
    let last = test.signed_in(&alice);
    assert_eq!(test.store.remove(&named("alice")).unwrap(), Some(alice.id));
    assert!(!test.is_live(&last) && test.is_live(&of_bob));
    assert!(test.store.begin_session(alice.id, HASH, NOW).unwrap().is_none());
    assert_eq!(test.store.remove(&named("alice")).unwrap(), None);
}

#[test]
fn a_later_account_of_the_same_name_is_another_one() {
    let mut test = TestStore::new();
    let first = test.joined("alice");
    let pending = test.store.invite(&named("alice"), NOW).unwrap();
    test.store.remove(&named("alice")).unwrap();
    assert_eq!(test.store.accept(pending.as_str(), HASH, NOW).unwrap(), None);
    let second = test.joined("alice");
    assert_ne!(first.id, second.id);
    assert!(test.store.is_removed(first.id).unwrap());
    assert!(!test.store.is_removed(second.id).unwrap());
    assert!(!test.store.is_removed(AccountId(99)).unwrap());
}

#[test]
fn an_account_has_few_sessions() {
    let mut test = TestStore::new();
    let alice = test.joined("alice");
    let bob = test.joined("bob");
    let of_bob = test.signed_in(&bob);
    for later in 0..50 {
        test.store.begin_session(alice.id, HASH, NOW + later).unwrap().unwrap();
    }
    let list = test.store.list(NOW).unwrap();
    let sessions: Vec<u64> = list.iter().map(|it| it.sessions).collect();
    assert_eq!(sessions, [20, 1]);
    assert!(test.is_live(&of_bob));
}

#[test]
fn the_database_has_no_secret_and_is_private() {
    let mut test = TestStore::new();
    let alice = test.joined("alice");
    let secrets = [
        test.signed_in(&alice),
        test.store.invite(&named("bob"), NOW).unwrap().as_str().to_owned(),
    ];
    let file = test.folder.path().join("accounts.sqlite");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let bytes = fs::read(&file).unwrap();
    for secret in secrets {
        assert_eq!(secret.len(), 64);
        let raw = base16ct::lower::decode_vec(&secret).unwrap();
        assert!(!bytes.windows(64).any(|part| part == secret.as_bytes()));
        assert!(!bytes.windows(32).any(|part| part == raw));
    }
}

#[test]
fn two_programs_use_the_database_at_a_time() {
    let mut test = TestStore::new();
    let mut command = AccountStore::open(test.folder.path()).unwrap();
    let alice = test.joined("alice");
    let session = test.signed_in(&alice);
    command.remove(&named("alice")).unwrap();
    assert!(!test.is_live(&session));
    fs::write(test.folder.path().join("accounts.sqlite"), "other").unwrap();
    assert!(AccountStore::open(test.folder.path()).is_err());
}

#[test]
fn run_time_counts_for_its_day() {
    let mut test = TestStore::new();
    let alice = test.joined("alice");
    test.store.add_run_time(alice.id, 5, 100).unwrap();
    test.store.add_run_time(alice.id, 5, 20).unwrap();
    assert_eq!(test.store.run_time(alice.id, 5).unwrap(), 120);
    test.store.add_run_time(alice.id, 6, 7).unwrap();
    assert_eq!(test.store.run_time(alice.id, 6).unwrap(), 7);
    test.store.remove(&named("alice")).unwrap();
    test.store.add_run_time(alice.id, 6, 7).unwrap();
    assert_eq!(test.store.run_time(alice.id, 6).unwrap(), 0);
}
