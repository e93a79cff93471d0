//! A hundred users at once: nothing is lost, all are served equally often, and the disk is bounded.

use std::collections::BTreeMap;
use std::time::Instant;

use tokio::sync::oneshot;

use super::*;

/// How many users there are, and how many runs each has waiting all the time.
const USERS: usize = 100;
const WAITING: usize = 2;

/// What became of the requests.
#[derive(Debug, Default)]
struct SoakFigures {
    created: usize,
    refused: usize,
    finished: usize,
    deleted: usize,
    max_bytes: u64,
    /// How many runs of each user have run.
    served: BTreeMap<usize, usize>,
}

/// Users keep runs waiting for some time, and delete results when the disk's quota refuses more.
async fn soak(duration: Duration) -> SoakFigures {
    let limits = QuotaLimits {
        unfinished: WAITING,
        bytes: 10 << 20,
        total_bytes: 400 << 20,
        run_bytes: 1 << 20,
        ..QuotaLimits::default()
    };
    let script = r#"[ "$1" = lab ] || exit 0
        head -c 200000 /dev/zero > "$5/results.csv"
        echo '{"event":"end","done":2,"total":2}'"#;
    let panel = AccountPanel::with_limits(script, limits);
    let mut browsers = Vec::new();
    for user in 0..USERS {
        browsers.push(panel.join(&format!("user-{user}")).await);
    }
    let mut figures = SoakFigures::default();
    let mut open: Vec<Vec<String>> = vec![Vec::new(); USERS];
    let mut kept: Vec<Vec<String>> = vec![Vec::new(); USERS];
    let begin = Instant::now();
    // The queue begins when all users have runs that wait: before, some would be ahead.
    let (all_wait, waited) = oneshot::channel();
    let mut all_wait = Some(all_wait);
    let using = async {
        let mut changes = panel.queue.changes();
        loop {
            let is_over = begin.elapsed() >= duration;
            for (user, browser) in browsers.iter().enumerate() {
                let mut left = Vec::new();
                for path in std::mem::take(&mut open[user]) {
                    let name = path.rsplit('/').next().unwrap().to_owned().try_into().unwrap();
                    let state = panel.queue.store().get(&name).map(|run| run.state);
                    // No run is lost, and none fails.
                    match state.unwrap() {
                        crate::run::RunState::Finished => {
                            figures.finished += 1;
                            *figures.served.entry(user).or_default() += 1;
                            kept[user].push(path);
                        }
                        state if state.is_over() => panic!("{path}: {state:?}"),
                        _ => left.push(path),
                    }
                }
                open[user] = left;
                while !is_over && open[user].len() < WAITING {
                    let (status, answer) = browser.call("POST", "/api/runs", &computation()).await;
                    if status == StatusCode::CREATED {
                        figures.created += 1;
                        open[user].push(format!("/api/runs/{}", answer["id"].as_str().unwrap()));
                        continue;
                    }
                    assert_eq!(status, StatusCode::INSUFFICIENT_STORAGE, "{answer}");
                    figures.refused += 1;
                    let oldest = kept[user].remove(0);
                    let (status, _) = browser.call("DELETE", &oldest, &Value::Null).await;
                    assert_eq!(status, StatusCode::NO_CONTENT);
                    figures.deleted += 1;
                }
            }
            if let Some(all_wait) = all_wait.take() {
                all_wait.send(()).unwrap();
            }
            let bytes = panel.queue.store().usage(None, 0).bytes;
            figures.max_bytes = figures.max_bytes.max(bytes);
            if is_over {
                return;
            }
            changes.changed().await.unwrap();
        }
    };
    let working = async {
        waited.await.unwrap();
        panel.queue.work().await;
    };
    tokio::select! {
        () = using => {}
        () = working => unreachable!("it works for ever"),
    }
    // Each request is a run that is on the disk or was deleted.
    let on_disk = fs::read_dir(panel.directory.path().join("runs")).unwrap().count();
    assert_eq!(on_disk + figures.deleted, figures.created);
    let (bytes, counted) = (disk_bytes(panel.directory.path()), figures.max_bytes);
    assert!(counted <= limits.total_bytes, "{counted}");
    assert!(bytes <= limits.total_bytes + (4 << 20), "{bytes}");
    for user in 0..USERS {
        figures.served.entry(user).or_default();
    }
    let (least, most) =
        (figures.served.values().min().unwrap(), figures.served.values().max().unwrap());
    assert!(most - least <= 1, "{:?}", figures.served);
    figures
}

/// The bytes of a directory with everything in it.
fn disk_bytes(path: &Path) -> u64 {
    let metadata = fs::symlink_metadata(path).unwrap();
    if !metadata.is_dir() {
        return metadata.len();
    }
    fs::read_dir(path).unwrap().map(|entry| disk_bytes(&entry.unwrap().path())).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_users_share_the_queue_and_the_disk() {
    let figures = soak(Duration::from_secs(6)).await;
    assert!(figures.created > USERS, "{figures:?}");
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "an hour, or SUNDER_ACCOUNTS_MINUTES"]
async fn a_hundred_users_share_the_queue_and_the_disk_for_an_hour() {
    let minutes = std::env::var("SUNDER_ACCOUNTS_MINUTES");
    let minutes: u64 = minutes.map_or(60, |it| it.parse().unwrap());
    let figures = soak(Duration::from_secs(60 * minutes)).await;
    let SoakFigures { created, refused, finished, deleted, max_bytes, served } = figures;
    let (least, most) = (served.values().min().unwrap(), served.values().max().unwrap());
    println!(
        "{minutes} minutes, {USERS} users: {created} runs requested, {finished} finished, \
         {least} to {most} of each user; {refused} refused by quota, {deleted} deleted; \
         at most {} MiB on the disk",
        max_bytes >> 20
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn requests_at_the_same_time_do_not_exceed_a_quota_together() {
    let limits = QuotaLimits {
        unfinished: 1000,
        bytes: 5 << 20,
        total_bytes: 12 << 20,
        run_bytes: 1 << 20,
        ..QuotaLimits::default()
    };
    let panel = Arc::new(AccountPanel::with_limits(SHORT, limits));
    let mut asking = tokio::task::JoinSet::new();
    for user in 0..4 {
        let cookie = panel.join(&format!("user-{user}")).await.cookie;
        for _ in 0..12 {
            let (panel, cookie) = (Arc::clone(&panel), cookie.clone());
            asking.spawn(async move {
                let browser = Browser { panel: &panel, cookie };
                (user, browser.call("POST", "/api/runs", &computation()).await.0)
            });
        }
    }
    let answers = asking.join_all().await;
    let created = |of: Option<usize>| {
        let created = answers.iter().filter(|(_, status)| *status == StatusCode::CREATED);
        created.filter(|(user, _)| of.is_none_or(|of| of == *user)).count()
    };
    assert_eq!(created(None), 12, "{answers:?}");
    assert!((0..4).all(|user| created(Some(user)) <= 5), "{answers:?}");
    let refused = answers.iter().filter(|(_, it)| *it == StatusCode::INSUFFICIENT_STORAGE).count();
    assert_eq!(refused, 36);
}
