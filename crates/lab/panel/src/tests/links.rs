//! Links to single runs, as those use them who have them, and as an attacker does.

use super::*;

/// A link to a run: the address without the host, and the cookie that it gives.
struct RunLink {
    address: String,
    cookie: String,
}

async fn share(panel: &TestPanel, path: &str) -> RunLink {
    let (status, document) = panel.call("POST", &format!("{path}/link"), &Value::Null).await;
    assert_eq!(status, StatusCode::CREATED, "{document}");
    let url = document["url"].as_str().unwrap();
    let address = url.strip_prefix(&format!("http://{ADDRESS}")).unwrap().to_owned();
    let opened = as_guest(panel, "GET", &address, "").await;
    assert_eq!(opened.status(), StatusCode::SEE_OTHER);
    let id = path.rsplit('/').next().unwrap();
    assert_eq!(opened.headers()["location"], format!("/?run={id}"));
    let cookie = opened.headers()["set-cookie"].to_str().unwrap();
    assert!(cookie.contains("HttpOnly") && cookie.contains("SameSite=Strict"), "{cookie}");
    RunLink { address, cookie: cookie.split(';').next().unwrap().to_owned() }
}

/// Asks with this cookie only.
async fn as_guest(panel: &TestPanel, method: &str, path: &str, cookie: &str) -> Response<Body> {
    let request = Request::builder().method(method).uri(path).header("host", ADDRESS);
    let request = request.header("cookie", cookie).header("content-type", "application/json");
    panel.send(request.body("{}".into()).unwrap()).await
}

#[tokio::test]
async fn a_link_shows_one_run_and_nothing_else() {
    let panel = TestPanel::new(MEASURES);
    let (path, other) = (panel.start().await, panel.start().await);
    panel.work_until(&other, "finished").await;
    let RunLink { address, cookie } = share(&panel, &path).await;
    assert_eq!(panel.get(&path).await["shared"], true);
    let toml = format!("{path}/files/compute.toml");
    let events = format!("{path}/events");
    for readable in [path.as_str(), &toml, &events, "/api/templates", "/", "/page.js"] {
        for method in ["GET", "HEAD"] {
            let answer = as_guest(&panel, method, readable, &cookie).await;
            assert_eq!(answer.status(), StatusCode::OK, "{method} {readable}");
        }
    }
    let secret = as_guest(&panel, "GET", &format!("{path}/files/run.json"), &cookie).await;
    assert_eq!(secret.status(), StatusCode::NOT_FOUND);
    let id_of = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let refused =
        [("GET", &other), ("POST", &other), ("POST", &path), ("PATCH", &path), ("DELETE", &path)];
    for (pattern, _) in crate::api::paths() {
        for (method, run) in refused {
            if method == "GET" && pattern == "/api/templates" {
                continue;
            }
            let path = pattern.replace("{id}", &id_of(run)).replace("{name}", "results.csv");
            let answer = as_guest(&panel, method, &path, &cookie).await;
            assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{method} {path}");
        }
    }
    for path in [
        format!("{path}0"),
        format!("{path}/../{}", id_of(&other)),
        format!("/api/runs/../runs/{}", id_of(&path)),
        format!("//{}", path.strip_prefix('/').unwrap()),
    ] {
        let answer = as_guest(&panel, "GET", &path, &cookie).await;
        assert!(!answer.status().is_server_error());
        assert!(!bytes(answer).await.starts_with(b"{\"id\""), "{path}");
    }
    // The secret is nowhere on the disk.
    let token = address.rsplit('=').next().unwrap();
    let record = panel.directory.path().join("runs").join(id_of(&path));
    assert!(!fs::read_to_string(record.join("run.json")).unwrap().contains(token));
    // It is neither the token of the page, nor of another run.
    for wrong in [
        format!("sunder-8840={token}"),
        format!("sunder-8840-{}={token}", id_of(&other)),
        cookie.replace("sunder-8840", "sunder-8841"),
        cookie[..cookie.len() - 1].to_owned(),
        "sunder-8840-=".to_owned(),
        format!("{}={}", cookie.split('=').next().unwrap(), panel.token),
    ] {
        let answer = as_guest(&panel, "GET", &path, &wrong).await;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{wrong}");
    }
    let wrong = format!("/?run={}&r={token}", id_of(&other));
    let answer = as_guest(&panel, "GET", &wrong, "").await;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    // Other pages cannot use it.
    let request = Request::builder().uri(&path).header("host", ADDRESS).header("cookie", cookie);
    let request = request.header("origin", "http://evil.example").body(Body::empty()).unwrap();
    assert_eq!(panel.send(request).await.status(), StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn a_link_is_valid_until_it_is_withdrawn_or_replaced() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    let first = share(&panel, &path).await;
    let second = share(&panel, &path).await;
    let status = async |link: &RunLink| as_guest(&panel, "GET", &path, &link.cookie).await.status();
    assert_eq!(status(&first).await, StatusCode::UNAUTHORIZED);
    assert_eq!(status(&second).await, StatusCode::OK);
    // The same after the server has started again.
    let TestPanel { directory, .. } = panel;
    let panel = TestPanel::in_directory(directory, MEASURES);
    let status = async |link: &RunLink| as_guest(&panel, "GET", &path, &link.cookie).await.status();
    assert_eq!(status(&second).await, StatusCode::OK);

    let events = as_guest(&panel, "GET", &format!("{path}/events"), &second.cookie).await;
    panel.call("POST", &format!("{path}/resume"), &Value::Null).await;
    let again = as_guest(&panel, "GET", &format!("{path}/events"), &second.cookie).await;
    let (withdrawn, _) = panel.call("DELETE", &format!("{path}/link"), &Value::Null).await;
    assert_eq!(withdrawn, StatusCode::NO_CONTENT);
    assert_eq!(status(&second).await, StatusCode::UNAUTHORIZED);
    let opened = as_guest(&panel, "GET", &second.address, "").await;
    assert_eq!(opened.status(), StatusCode::UNAUTHORIZED);
    assert_eq!(panel.get(&path).await["shared"], false);
    // Streams of events end, although the run waits.
    for stream in [events, again] {
        tokio::time::timeout(Duration::from_secs(60), bytes(stream)).await.unwrap();
    }
}

#[tokio::test]
async fn guests_leave_places_for_the_owner() {
    let panel = TestPanel::new(MEASURES);
    let path = panel.start().await;
    let link = share(&panel, &path).await;
    let events = format!("{path}/events");
    let mut streams = Vec::new();
    let refused = loop {
        let answer = as_guest(&panel, "GET", &events, &link.cookie).await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
        streams.push(answer);
    };
    assert_eq!((refused.status(), streams.len()), (StatusCode::SERVICE_UNAVAILABLE, 128));
    let own = panel.send(panel.request("GET", &events).body(Body::empty()).unwrap()).await;
    assert_eq!(own.status(), StatusCode::OK);
}
