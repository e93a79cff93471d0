//! What attackers try: strangers, other pages, and users who ask for what is not theirs.

use tar::Header;

use super::*;
use crate::api::{OPENAPI, paths};
use crate::tests::uploads::{pair_with, upload};

const METHODS: [&str; 5] = ["GET", "POST", "PUT", "PATCH", "DELETE"];

#[tokio::test]
async fn forged_cookies_open_nothing() {
    let panel = AccountPanel::new(SHORT);
    let alice = panel.join("alice").await;
    let (name, secret) = alice.cookie.split_once('=').unwrap();
    let digest = crate::token::digest(secret);
    for cookie in [
        String::new(),
        name.to_owned(),
        format!("{name}="),
        format!("{name}={}", "0".repeat(64)),
        format!("{name}={}", &secret[..63]),
        format!("{name}={secret}0"),
        format!("{name}={}", secret.to_uppercase()),
        format!("{name}={digest}"),
        format!("{name}=' OR 1=1 --"),
        format!("{name}-{secret}={secret}"),
        format!("sunder-8841={secret}"),
        format!("x{name}={secret}"),
    ] {
        for (path, _) in paths() {
            if ["/api/session", "/api/invitation"].contains(&path) {
                continue;
            }
            let path = path.replace("{id}", "20261128-154233-7f3a7f3a").replace("{name}", "x.svg");
            for method in METHODS {
                let browser = Browser { panel: &panel, cookie: cookie.clone() };
                let (status, _) = browser.call(method, &path, &Value::Null).await;
                assert_eq!(status, StatusCode::UNAUTHORIZED, "{method} {path} {cookie}");
            }
        }
    }
    // A flood of cookies does not hide the right one from its place among the first.
    let many = format!("{}; {}", alice.cookie, format!("{name}=0; ").repeat(100));
    assert!(Browser { panel: &panel, cookie: many }.is_live().await);
}

#[tokio::test]
async fn a_session_that_an_attacker_has_set_is_never_signed_in() {
    let panel = AccountPanel::new(SHORT);
    panel.join("alice").await;
    let mallory = panel.join("mallory").await;
    for fixed in [mallory.cookie.clone(), format!("sunder-8840={}", "0".repeat(64))] {
        let mut victim = Browser { panel: &panel, cookie: fixed.clone() };
        assert_eq!(victim.login("alice", PASSWORD).await, StatusCode::NO_CONTENT);
        assert_ne!(victim.cookie, fixed);
        assert_eq!(victim.get("/api/session").await["name"], "alice");
        // The one that was set is nobody's any more.
        assert!(!Browser { panel: &panel, cookie: fixed }.is_live().await);
    }
}

#[tokio::test]
async fn a_session_ends_when_its_browser_accepts_an_invitation() {
    let panel = AccountPanel::new(SHORT);
    let mut browser = panel.join("alice").await;
    let earlier = Browser { panel: &panel, cookie: browser.cookie.clone() };
    let request = json!({ "secret": panel.invite("bob"), "password": PASSWORD });
    assert_eq!(browser.enter("POST", "/api/invitation", &request).await, StatusCode::NO_CONTENT);
    assert_eq!(browser.get("/api/session").await["name"], "bob");
    assert!(!earlier.is_live().await);
}

#[tokio::test]
async fn other_pages_change_nothing() {
    let panel = AccountPanel::new(SHORT);
    let alice = panel.join("alice").await;
    let run = alice.start().await;
    let send = async |headers: &[(&str, &str)], method: &str, path: &str, body: &str| {
        let mut request = Request::builder().method(method).uri(path).header("host", ADDRESS);
        request = request.header("cookie", &alice.cookie);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        panel.send(request.body(body.to_owned().into()).unwrap()).await.status()
    };
    let id = run.rsplit('/').next().unwrap();
    for (path, _) in paths() {
        let path = path.replace("{id}", id).replace("{name}", "x.svg");
        for method in &METHODS[1..] {
            // A form needs no permission of the server, and sends no header of its own.
            for kind in ["application/x-www-form-urlencoded", "text/plain", "multipart/form-data"] {
                for site in ["cross-site", "same-site", "none"] {
                    let headers = [("content-type", kind), ("sec-fetch-site", site)];
                    let status = send(&headers, method, &path, "a=b").await;
                    assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path} {kind}");
                }
            }
            for origin in
                ["http://evil.example", "null", "https://127.0.0.1:8840", "http://127.0.0.1"]
            {
                let headers = [("origin", origin), ("x-sunder", "1")];
                let status = send(&headers, method, &path, "{}").await;
                assert_eq!(status, StatusCode::FORBIDDEN, "{method} {path} {origin}");
            }
        }
    }
    assert_eq!(alice.get(&run).await["state"], "queued");
    assert!(alice.is_live().await);
    // No answer lets another page read, or send the header.
    let request = alice.request("OPTIONS", "/api/runs").header("origin", "http://evil.example");
    let request = request.header("access-control-request-method", "POST");
    let answer = panel.send(request.body(Body::empty()).unwrap()).await;
    assert!(answer.headers().keys().all(|name| !name.as_str().starts_with("access-control")));
    assert_eq!(answer.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_run_of_somebody_else_is_not_there_on_any_route() {
    let panel = AccountPanel::new(MEASURES);
    let (alice, mallory) = (panel.join("alice").await, panel.join("mallory").await);
    let path = alice.start().await;
    panel.work_until(async || alice.get(&path).await["state"] == "finished").await;
    let id = path.rsplit('/').next().unwrap();
    let absent = "20261128-154233-7f3a7f3a";
    // Operations of the document, so that new ones are covered.
    let document: Value = serde_json::from_str(OPENAPI).unwrap();
    let mut tried = 0;
    for (pattern, operations) in document["paths"].as_object().unwrap() {
        for method in operations.as_object().unwrap().keys() {
            for body in [Value::Null, json!({}), json!({ "note": "mine" })] {
                let ask = async |id: &str| {
                    let path = pattern.replace("{id}", id).replace("{name}", "compute.toml");
                    mallory.call(&method.to_uppercase(), &path, &body).await
                };
                if pattern.contains("{id}") {
                    let (status, answer) = ask(id).await;
                    assert_eq!(status, StatusCode::NOT_FOUND, "{method} {pattern}: {answer}");
                    assert_eq!((status, answer), ask(absent).await, "{method} {pattern}");
                    tried += 1;
                } else if method == "get" {
                    let (_, answer) = ask(id).await;
                    let text = answer.to_string();
                    assert!(!text.contains(id), "{pattern}: {text}");
                }
            }
        }
    }
    assert!(tried >= 3 * 9, "{tried}");
    assert_eq!(mallory.get("/api/runs?search=aes").await["total"], 0);
    assert_eq!(
        mallory
            .get(
                &format!("/api/runs?before={id}0")
                    .replace(&format!("{id}0"), "99999999-000000-00000000")
            )
            .await["total"],
        0
    );
    // It is unchanged.
    let run = alice.get(&path).await;
    assert_eq!((&run["note"], &run["state"]), (&json!(""), &json!("finished")));
    assert_eq!(run["shared"], false);
}

#[tokio::test]
async fn a_link_shows_a_run_to_others_and_lets_them_change_nothing() {
    let panel = AccountPanel::new(MEASURES);
    let (alice, mut bob) = (panel.join("alice").await, panel.join("bob").await);
    let (path, other) = (alice.start().await, alice.start().await);
    panel.work_until(async || alice.get(&other).await["state"] == "finished").await;
    let (_, link) = alice.call("POST", &format!("{path}/link"), &Value::Null).await;
    let url = link["url"].as_str().unwrap();
    let address = url.strip_prefix(&format!("http://{ADDRESS}")).unwrap();
    let opened = bob.answer("GET", address, &Value::Null).await;
    assert_eq!(opened.0, StatusCode::SEE_OTHER);
    let of_link = opened.1["set-cookie"].to_str().unwrap().split(';').next().unwrap().to_owned();
    bob.cookie = format!("{}; {of_link}", bob.cookie);
    bob.get(&path).await;
    let own = bob.start().await;
    bob.get(&own).await;
    assert_eq!(bob.get("/api/runs").await["total"], 1);
    for method in ["PATCH", "DELETE"] {
        let (status, _) = bob.call(method, &path, &json!({ "note": "mine" })).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{method}");
    }
    for part in ["stop", "resume", "link"] {
        let (status, _) = bob.call("POST", &format!("{path}/{part}"), &Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{part}");
    }
    assert_eq!(bob.call("GET", &other, &Value::Null).await.0, StatusCode::NOT_FOUND);
    // Without an account the link is enough, until it is withdrawn.
    let guest = Browser { panel: &panel, cookie: of_link };
    guest.get(&path).await;
    alice.call("DELETE", &format!("{path}/link"), &Value::Null).await;
    assert_eq!(guest.call("GET", &path, &Value::Null).await.0, StatusCode::UNAUTHORIZED);
    assert_eq!(bob.call("GET", &path, &Value::Null).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test]
async fn a_logout_ends_the_event_stream() {
    let panel = AccountPanel::new(RUNS_ON);
    let mut alice = panel.join("alice").await;
    let path = alice.start().await;
    let request = alice.request("GET", &format!("{path}/events")).body(Body::empty()).unwrap();
    let stream = panel.send(request).await;
    assert_eq!(stream.status(), StatusCode::OK);
    alice.enter("DELETE", "/api/session", &Value::Null).await;
    let ended = async {
        // Changes wake the stream, which checks its session once a second.
        let mut stream = std::pin::pin!(bytes(stream));
        loop {
            tokio::select! {
                _ = &mut stream => return,
                () = tokio::time::sleep(Duration::from_millis(100)) => panel.queue.changed(),
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(60), ended).await.unwrap();
}

#[tokio::test]
async fn an_invitation_is_good_for_one_password() {
    let panel = AccountPanel::new(SHORT);
    let secret = panel.invite("alice");
    let accept = |password: &str| json!({ "secret": secret, "password": password });
    let stranger = panel.stranger();
    // A password that is refused does not use it up.
    let (status, refused) = stranger.call("POST", "/api/invitation", &accept("short")).await;
    assert_eq!((status, &refused["field"]), (StatusCode::UNPROCESSABLE_ENTITY, &json!("password")));
    // Of many at a time one wins.
    let tries = (0..8).map(|number| {
        let request = accept(&format!("password number {number}"));
        let browser = panel.stranger();
        async move { panel_status(&browser, &request).await }
    });
    let statuses = futures_util::future::join_all(tries).await;
    let accepted = statuses.iter().filter(|it| **it == StatusCode::NO_CONTENT).count();
    let refused = statuses.iter().filter(|it| **it == StatusCode::FORBIDDEN).count();
    assert_eq!((accepted, refused), (1, 7), "{statuses:?}");
    for wrong in ["", &"0".repeat(64), "' OR 1=1"] {
        let request = json!({ "secret": wrong, "password": PASSWORD });
        assert_eq!(panel_status(&stranger, &request).await, StatusCode::FORBIDDEN);
    }
}

async fn panel_status(browser: &Browser<'_>, request: &Value) -> StatusCode {
    browser.call("POST", "/api/invitation", request).await.0
}

#[tokio::test]
async fn guesses_are_slowed_and_tell_nothing_of_names() {
    let panel = AccountPanel::new(SHORT);
    panel.join("alice").await;
    panel.invite("invited");
    let stranger = panel.stranger();
    let guess = async |name: &str| {
        let request = json!({ "name": name, "password": "a wrong password" });
        stranger.call("POST", "/api/session", &request).await
    };
    let known = guess("alice").await;
    assert_eq!(known.0, StatusCode::FORBIDDEN);
    for unknown in ["bob", "invited", "", "ALICE", "' OR 1=1 --", &"x".repeat(3000)] {
        assert_eq!(guess(unknown).await, known, "{unknown}");
    }
    let mut allowed = 1;
    while guess("alice").await.0 == StatusCode::FORBIDDEN {
        allowed += 1;
    }
    assert!(allowed <= 11, "{allowed}");
    // The right password waits, too, or else a guess would tell.
    let request = json!({ "name": "alice", "password": PASSWORD });
    let (status, refused) = stranger.call("POST", "/api/session", &request).await;
    assert_eq!(status, StatusCode::TOO_MANY_REQUESTS, "{refused}");
    // An unknown name is slowed as a known one.
    let mut allowed = 1;
    while guess("bob").await.0 == StatusCode::FORBIDDEN {
        allowed += 1;
    }
    assert!(allowed <= 11, "{allowed}");
}

#[tokio::test]
async fn strangers_send_short_bodies_only() {
    let panel = AccountPanel::new(SHORT);
    let stranger = panel.stranger();
    for path in ["/api/session", "/api/invitation"] {
        let request = json!({ "name": "alice", "password": "x".repeat(9000) });
        let (status, _) = stranger.call("POST", path, &request).await;
        assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE, "{path}");
    }
    // Nor where no body belongs.
    for path in ["/", "/page.js", "/none"] {
        let request = stranger.request("POST", path).body("x".repeat(9000).into()).unwrap();
        assert_eq!(panel.send(request).await.status(), StatusCode::PAYLOAD_TOO_LARGE, "{path}");
    }
}

#[tokio::test]
async fn answers_that_are_not_read_count_as_requests() {
    let panel = AccountPanel::new(SHORT);
    let [alice, bob] = [panel.join("alice").await, panel.join("bob").await];
    let get = |browser: &Browser<'_>| {
        browser.request("GET", "/api/templates").body(Body::empty()).unwrap()
    };
    let mut unread = Vec::new();
    for _ in 0..16 {
        let response = panel.send(get(&alice)).await;
        assert_eq!(response.status(), StatusCode::OK);
        unread.push(response);
    }
    assert_eq!(panel.send(get(&alice)).await.status(), StatusCode::TOO_MANY_REQUESTS);
    assert_eq!(panel.send(get(&bob)).await.status(), StatusCode::OK);
    // One is read, and another one's connection ends.
    bytes(unread.pop().unwrap()).await;
    unread.pop();
    for _ in 0..3 {
        let (status, _) = alice.call("GET", "/api/templates", &Value::Null).await;
        assert_eq!(status, StatusCode::OK);
    }
}

#[tokio::test]
async fn too_many_points_are_refused_before_they_are_made() {
    let panel = AccountPanel::new(SHORT);
    let alice = panel.join("alice").await;
    let numbers = |count: u32| (1..=count).collect::<Vec<_>>();
    let losses: Vec<f64> = (1..=64).map(|it| f64::from(it) / 1000.0).collect();
    let values = json!({
        "circuit": ["aes128"], "scheme": ["half-gates"], "transport": ["tcp-cubic"],
        "delay_ms": numbers(64), "loss": losses, "rate_mbit": numbers(24), "back_mbit": [1000],
    });
    let request = json!({ "template": "compute", "values": values });
    for path in ["/api/toml", "/api/runs", "/api/predict"] {
        let (status, refusal) = alice.call("POST", path, &request).await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{path}: {refusal}");
        assert!(refusal.to_string().contains("98304 trials"), "{path}: {refusal}");
    }
}

#[tokio::test]
async fn what_runs_on_the_host_is_not_for_accounts() {
    let panel = AccountPanel::new(SHORT);
    let alice = panel.join("alice").await;
    let (status, _) = alice.call("GET", "/api/live", &Value::Null).await;
    assert_eq!(status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn an_upload_is_of_its_account_alone_and_counts_in_its_quota() {
    let panel = AccountPanel::new(SHORT);
    let (alice, bob) = (panel.join("alice").await, panel.join("bob").await);
    let archive = pair_with(|archive| {
        let mut header = Header::new_gnu();
        header.set_size(100_000);
        archive.append_data(&mut header, "pair/data", &vec![7; 100_000][..]).unwrap();
    });
    let (status, document) = alice.call("POST", "/api/runs", &upload(&archive)).await;
    assert_eq!(status, StatusCode::CREATED, "{document}");
    let path = format!("/api/runs/{}", document["id"].as_str().unwrap());
    panel.work_until(async || alice.get(&path).await["state"] == "finished").await;
    for part in ["", "/files/scripts.archive", "/files/scripts.toml"] {
        let (status, _) = bob.call("GET", &format!("{path}{part}"), &Value::Null).await;
        assert_eq!(status, StatusCode::NOT_FOUND, "{part}");
    }
    let held = async |browser: &Browser<'_>| {
        browser.get("/api/session").await["usage"]["bytes"].as_u64().unwrap()
    };
    assert!(held(&alice).await >= archive.len() as u64);
    assert_eq!(held(&bob).await, 0);
    // The server has virtual machines for scripts.
    let file = alice.request("GET", &format!("{path}/files/scripts.toml"));
    let text = bytes(panel.send(file.body(Body::empty()).unwrap()).await).await;
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("contain = \"vm\"") && !text.contains("contain = true"), "{text}");
}
