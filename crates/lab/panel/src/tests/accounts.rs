//! Several users with accounts: what each can do, and what an attacker cannot.

mod attacks;
mod many;
mod served;

use ::accounts::{AccountName, AccountStore, PasswordHasher};
use axum::http::HeaderMap;

use super::*;
use crate::account_service::AccountService;
use crate::page_url::PageUrl;
use crate::quota::QuotaLimits;

const PASSWORD: &str = "correct horse battery";

/// A run that is over at once.
const SHORT: &str = r#"[ "$1" = lab ] || exit 0
echo '{"event":"end","done":2,"total":2}'"#;

/// A run that does not end by itself.
const RUNS_ON: &str = r#"[ "$1" = lab ] || exit 0
trap 'exit 143' TERM
echo '{"event":"trial","number":1,"done":0,"total":2,"name":"trial 1"}'
while :; do sleep 0.05; done"#;

/// A server with accounts.
struct AccountPanel {
    directory: TempDir,
    queue: Arc<RunQueue>,
    service: Router,
}

/// A browser, which is signed in to an account or is not.
struct Browser<'a> {
    panel: &'a AccountPanel,
    cookie: String,
}

impl AccountPanel {
    fn new(script: &str) -> Self {
        Self::with_limits(script, QuotaLimits::default())
    }

    fn with_limits(script: &str, limits: QuotaLimits) -> Self {
        Self::in_directory(tempfile::tempdir().unwrap(), script, limits)
    }

    fn in_directory(directory: TempDir, script: &str, limits: QuotaLimits) -> Self {
        let program = directory.path().join("program");
        fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let accounts = AccountStore::open(directory.path()).unwrap();
        let accounts = AccountService::new(accounts, PasswordHasher::new(64, 1), limits);
        let runs = RunStore::open(&directory.path().join("runs"), QueueAtRestart::Kept).unwrap();
        let address = ADDRESS.parse().unwrap();
        let url = PageUrl::of_listener(address, false);
        let accounts = Arc::new(accounts);
        let queue = RunQueue::new(program, runs, Some(Arc::clone(&accounts)));
        let isolation = ScriptIsolation::VirtualMachine;
        let service = crate::service_with_accounts(&queue, accounts, &url, address, isolation);
        Self { directory, queue, service }
    }

    /// The database, as a command of the administrator opens it.
    fn store(&self) -> AccountStore {
        AccountStore::open(self.directory.path()).unwrap()
    }

    fn invite(&self, name: &str) -> String {
        let secret = self.store().invite(&named(name), ::accounts::now()).unwrap();
        secret.as_str().to_owned()
    }

    fn stranger(&self) -> Browser<'_> {
        Browser { panel: self, cookie: String::new() }
    }

    /// A browser that has accepted an invitation.
    async fn join(&self, name: &str) -> Browser<'_> {
        let mut browser = self.stranger();
        let request = json!({ "secret": self.invite(name), "password": PASSWORD });
        assert_eq!(
            browser.enter("POST", "/api/invitation", &request).await,
            StatusCode::NO_CONTENT
        );
        browser
    }

    async fn send(&self, request: Request<Body>) -> Response<Body> {
        self.service.clone().oneshot(request).await.unwrap()
    }

    /// Works until a condition holds.
    async fn work_until(&self, holds: impl AsyncFn() -> bool) {
        let mut changes = self.queue.changes();
        let reached = async {
            while !holds().await {
                changes.changed().await.unwrap();
            }
        };
        tokio::select! {
            () = reached => {}
            () = self.queue.work() => unreachable!("it works for ever"),
            () = tokio::time::sleep(Duration::from_secs(90)) => panic!("never"),
        }
    }
}

impl Browser<'_> {
    fn request(&self, method: &str, path: &str) -> axum::http::request::Builder {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", ADDRESS)
            .header("cookie", &self.cookie)
            .header("x-sunder", "1")
            .header("content-type", "application/json")
    }

    async fn call(&self, method: &str, path: &str, body: &Value) -> (StatusCode, Value) {
        let (status, _, document) = self.answer(method, path, body).await;
        (status, document)
    }

    async fn answer(
        &self,
        method: &str,
        path: &str,
        body: &Value,
    ) -> (StatusCode, HeaderMap, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let response = self.panel.send(self.request(method, path).body(body.into()).unwrap()).await;
        let (status, headers) = (response.status(), response.headers().clone());
        (status, headers, serde_json::from_slice(&bytes(response).await).unwrap_or_default())
    }

    /// Asks, and keeps the cookie of the answer.
    async fn enter(&mut self, method: &str, path: &str, body: &Value) -> StatusCode {
        let (status, headers, _) = self.answer(method, path, body).await;
        if let Some(cookie) = headers.get("set-cookie") {
            let cookie = cookie.to_str().unwrap();
            assert!(cookie.contains("HttpOnly; SameSite=Strict"), "{cookie}");
            cookie.split(';').next().unwrap().clone_into(&mut self.cookie);
        }
        status
    }

    async fn login(&mut self, name: &str, password: &str) -> StatusCode {
        let request = json!({ "name": name, "password": password });
        self.enter("POST", "/api/session", &request).await
    }

    async fn get(&self, path: &str) -> Value {
        let (status, document) = self.call("GET", path, &Value::Null).await;
        assert_eq!(status, StatusCode::OK, "{path}: {document}");
        document
    }

    /// Requests a run. Returns its path.
    async fn start(&self) -> String {
        let (status, document) = self.call("POST", "/api/runs", &computation()).await;
        assert_eq!(status, StatusCode::CREATED, "{document}");
        format!("/api/runs/{}", document["id"].as_str().unwrap())
    }

    async fn is_live(&self) -> bool {
        self.call("GET", "/api/runs", &Value::Null).await.0 == StatusCode::OK
    }
}

fn named(name: &str) -> AccountName {
    name.parse().unwrap()
}

#[tokio::test]
async fn a_person_accepts_an_invitation_signs_in_and_out() {
    let panel = AccountPanel::new(SHORT);
    let alice = panel.join("alice").await;
    assert_eq!(alice.get("/api/session").await["name"], "alice");
    let mut second = panel.stranger();
    assert_eq!(second.get("/api/session").await["name"], Value::Null);
    assert!(!second.is_live().await);
    assert_eq!(second.login("alice", PASSWORD).await, StatusCode::NO_CONTENT);
    assert!(second.is_live().await);
    // Each browser has a session of its own.
    let old = second.cookie.clone();
    assert_ne!(old, alice.cookie);
    assert_eq!(second.enter("DELETE", "/api/session", &Value::Null).await, StatusCode::NO_CONTENT);
    assert!(!Browser { panel: &panel, cookie: old }.is_live().await);
    assert!(alice.is_live().await);
}

#[tokio::test]
async fn a_new_password_ends_all_other_sessions() {
    let panel = AccountPanel::new(SHORT);
    let mut alice = panel.join("alice").await;
    let mut second = panel.stranger();
    second.login("alice", PASSWORD).await;
    let wrong = json!({ "old": "wrong", "new": "another long password" });
    assert_eq!(alice.call("PUT", "/api/password", &wrong).await.0, StatusCode::FORBIDDEN);
    let short = json!({ "old": PASSWORD, "new": "short" });
    let (status, refused) = alice.call("PUT", "/api/password", &short).await;
    assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{refused}");
    assert!(second.is_live().await);
    let right = json!({ "old": PASSWORD, "new": "another long password" });
    assert_eq!(alice.enter("PUT", "/api/password", &right).await, StatusCode::NO_CONTENT);
    assert!(alice.is_live().await && !second.is_live().await);
    assert_eq!(second.login("alice", PASSWORD).await, StatusCode::FORBIDDEN);
    assert_eq!(second.login("alice", "another long password").await, StatusCode::NO_CONTENT);
}

#[tokio::test]
async fn a_removed_account_leaves_nothing() {
    let panel = AccountPanel::new(RUNS_ON);
    let (alice, bob) = (panel.join("alice").await, panel.join("bob").await);
    let (running, waiting) = (alice.start().await, alice.start().await);
    let kept = bob.start().await;
    let runs = panel.directory.path().join("runs");
    let is_there = |path: &str| runs.join(path.rsplit('/').next().unwrap()).exists();
    let is_removed = async || {
        if is_there(&waiting)
            && alice.is_live().await
            && alice.get(&running).await["state"] == "running"
        {
            panel.store().remove(&named("alice")).unwrap();
        }
        !is_there(&running) && !is_there(&waiting)
    };
    panel.work_until(is_removed).await;
    assert!(!alice.is_live().await && is_there(&kept));
}

#[tokio::test]
async fn waiting_runs_survive_the_end_of_the_server_and_none_runs_twice_unsaid() {
    let panel = AccountPanel::new(RUNS_ON);
    let alice = panel.join("alice").await;
    let [first, second] = [alice.start().await, alice.start().await];
    let is_running = async || alice.get(&first).await["state"] == "running";
    panel.work_until(is_running).await;
    let cookie = alice.cookie.clone();
    // The server ends without a word.
    let AccountPanel { directory, .. } = panel;
    let panel = AccountPanel::in_directory(directory, SHORT, QuotaLimits::default());
    let alice = Browser { panel: &panel, cookie };
    assert_eq!(alice.get(&first).await["state"], "interrupted");
    assert_eq!(alice.get(&second).await["state"], "queued");
    let is_finished = async || alice.get(&second).await["state"] == "finished";
    panel.work_until(is_finished).await;
    assert_eq!(alice.get(&first).await["state"], "interrupted");
}

#[tokio::test]
async fn places_in_the_queue_count_the_runs_of_others() {
    let panel = AccountPanel::new(SHORT);
    let (alice, bob) = (panel.join("alice").await, panel.join("bob").await);
    for _ in 0..3 {
        alice.start().await;
    }
    bob.start().await;
    let places = async |browser: &Browser<'_>| {
        let queue = browser.get("/api/queue").await;
        let queued = queue["queued"].as_array().unwrap().iter();
        queued.map(|run| run["place"].as_u64().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(places(&alice).await, [1, 3, 4]);
    assert_eq!(places(&bob).await, [2]);
}

#[tokio::test]
async fn quotas_are_said_and_shown() {
    let limits = QuotaLimits { unfinished: 2, ..QuotaLimits::default() };
    let panel = AccountPanel::with_limits(SHORT, limits);
    let (alice, bob) = (panel.join("alice").await, panel.join("bob").await);
    let (first, _) = (alice.start().await, alice.start().await);
    let (status, refused) = alice.call("POST", "/api/runs", &computation()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused["error"].as_str().unwrap().contains("2 of your runs wait"), "{refused}");
    bob.start().await;
    let usage = alice.get("/api/session").await["usage"].clone();
    assert_eq!((&usage["unfinished"], &usage["max_unfinished"]), (&json!(2), &json!(2)));
    assert_eq!(usage["bytes"], 2 * limits.run_bytes);
    assert_eq!(
        alice.call("POST", &format!("{first}/stop"), &Value::Null).await.0,
        StatusCode::ACCEPTED
    );
    let usage = alice.get("/api/session").await["usage"].clone();
    let bytes = usage["bytes"].as_u64().unwrap();
    assert!(bytes > limits.run_bytes && bytes < limits.run_bytes + (1 << 20), "{bytes}");
    alice.start().await;
}

#[tokio::test]
async fn a_run_that_holds_too_much_is_stopped() {
    let script = r#"[ "$1" = lab ] || exit 0
        trap 'exit 143' TERM
        head -c 3000000 /dev/zero > "$5/big.csv"
        while :; do sleep 0.05; done"#;
    let limits = QuotaLimits { run_bytes: 2 << 20, ..QuotaLimits::default() };
    let panel = AccountPanel::with_limits(script, limits);
    let alice = panel.join("alice").await;
    let path = alice.start().await;
    panel.work_until(async || alice.get(&path).await["state"] == "stopped").await;
    let error = alice.get(&path).await["error"].as_str().unwrap().to_owned();
    assert!(error.contains("more than 2 MiB"), "{error}");
}

#[tokio::test]
async fn a_run_ends_when_the_time_of_the_day_is_used() {
    let limits = QuotaLimits { time_a_day: Duration::from_millis(300), ..QuotaLimits::default() };
    let panel = AccountPanel::with_limits(RUNS_ON, limits);
    let (alice, bob) = (panel.join("alice").await, panel.join("bob").await);
    let (path, waiting, of_bob) = (alice.start().await, alice.start().await, bob.start().await);
    let state = async |browser: &Browser<'_>, path: &str| browser.get(path).await["state"].clone();
    panel.work_until(async || state(&bob, &of_bob).await == "stopped").await;
    assert_eq!(state(&alice, &path).await, "stopped");
    // What waits runs tomorrow.
    assert_eq!(state(&alice, &waiting).await, "queued");
    let (status, refused) = alice.call("POST", "/api/runs", &computation()).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS);
    assert!(refused["error"].as_str().unwrap().contains("today"), "{refused}");
}
