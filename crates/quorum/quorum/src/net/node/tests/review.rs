//! What waits is shown at every server, expires, and is withdrawn.

use super::*;
use crate::net::links::{LinkLane, LinkTopic, QuorumLinks, QuorumPeer};
use crate::policy::MessageDigest;
use crate::protocol::review::{MAX_LISTED, RegistrationList, ReviewedRegistration};

impl World {
    /// Starts a server whose registrations last this long.
    async fn start_with_expiry(&self, number: usize, expires: Duration) -> Running {
        let config = QuorumNodeConfig { registration_expires: expires, ..self.config(number) };
        let (log, key) = (self.log.clone(), identity(number).public());
        let start_log = move |start: LogStart<_>| Ok(log.open(key, start.applied));
        run(&config, self.open(&config).await, start_log)
    }

    fn audit_log(&self, number: usize) -> String {
        fs::read_to_string(self.place.path().join(format!("store-{number}/audit.log"))).unwrap()
    }
}

/// The numbers of the servers at which a message waits, as a server sees it.
async fn waits_at(server: &Running, digest: MessageDigest) -> Vec<u64> {
    let pending = server.client.pending().await.unwrap();
    let found = pending.registrations.iter().filter(|it| it.digest == digest.to_string());
    found.filter_map(|it| it.server).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_registration_is_shown_at_every_server_until_it_is_used_there_or_withdrawn() {
    let world = World::new(4);
    let servers = world.start_all(1..=4).await;
    until_healthy(&servers).await;
    let messages = [Bytes::from_static(MESSAGE), Bytes::from_static(b"another")];
    let [used, withdrawn] = [&messages[0], &messages[1]].map(|it| MessageDigest::of(it));
    for server in &servers[..2] {
        server.client.register(messages[0].clone()).await.unwrap();
    }
    servers[1].client.register(messages[1].clone()).await.unwrap();
    for server in &servers {
        until("it is shown", async || {
            let mut at = waits_at(server, used).await;
            at.sort_unstable();
            at == [1, 2] && waits_at(server, withdrawn).await == [2]
        })
        .await;
    }
    let pending = servers[3].client.pending().await.unwrap();
    let shown = pending.registrations.iter().find(|it| it.digest == used.to_string()).unwrap();
    assert_eq!(shown.first, base16ct::lower::encode_string(MESSAGE));
    assert_eq!(shown.uid, Some(rustix::process::geteuid().as_raw()));
    assert_eq!(servers[1].client.registered_message(withdrawn).await.unwrap(), messages[1]);
    let elsewhere = servers[3].client.registered_message(withdrawn).await.unwrap_err();
    assert!(matches!(elsewhere, QuorumApiError::Refused { status: 404, .. }), "{elsewhere}");

    servers[0].client.sign(messages[0].clone(), ApiEncoding::Pkcs1).await.unwrap();
    servers[1].client.withdraw(withdrawn).await.unwrap();
    let refused = servers[1].client.sign(messages[1].clone(), ApiEncoding::Pkcs1).await;
    assert!(refused.unwrap_err().is_forbidden());
    let again = servers[1].client.withdraw(withdrawn).await.unwrap_err();
    assert!(matches!(again, QuorumApiError::Refused { status: 404, .. }), "{again}");
    // The second server has only helped: what a faulty server asks for does not hide it there.
    for server in &servers {
        until("one waits", async || {
            waits_at(server, used).await == [2] && waits_at(server, withdrawn).await.is_empty()
        })
        .await;
    }
    servers[1].client.sign(messages[0].clone(), ApiEncoding::Pkcs1).await.unwrap();
    until("nothing waits", async || waits_at(&servers[1], used).await.is_empty()).await;
    let log = world.audit_log(2);
    let uid = format!("\"uid\":{}", rustix::process::geteuid().as_raw());
    let line = log.lines().find(|line| line.contains("\"event\":\"withdrawn\"")).unwrap();
    assert!(line.contains(&withdrawn.to_string()) && line.contains(&uid), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_expired_registration_is_refused() {
    let world = World::new(4);
    let mut servers = Vec::new();
    for number in 1..=4 {
        servers.push(world.start_with_expiry(number, Duration::from_secs(1)).await);
    }
    until_healthy(&servers).await;
    let message = Bytes::from_static(MESSAGE);
    let digest = MessageDigest::of(MESSAGE);
    for server in &servers[..2] {
        assert!(server.client.register(message.clone()).await.unwrap().new);
    }
    for server in &servers[..2] {
        until("it has expired", async || server.client.registered_message(digest).await.is_err())
            .await;
        let refused = server.client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap_err();
        assert!(refused.is_forbidden(), "{refused}");
    }
    assert!(world.audit_log(1).contains("\"event\":\"expired\""));
    assert!(servers[0].client.register(message).await.unwrap().new, "it begins anew");
}

/// The end of a registration is stored. A restart does not move it, unless registrations last
/// shorter now.
#[tokio::test(flavor = "multi_thread")]
async fn a_restart_does_not_extend_a_registration() {
    let world = World::new(4);
    let hour = Duration::from_secs(3_600);
    let until = async |server: &Running| {
        let pending = server.client.pending().await.unwrap();
        pending.registrations.first().map(|it| it.until.clone()).unwrap()
    };
    let stop = async |server: Running| {
        drop(server.socket);
        server.node.stop().await.unwrap();
    };
    let server = world.start_with_expiry(1, hour).await;
    server.client.register(Bytes::from_static(MESSAGE)).await.unwrap();
    let first = until(&server).await;
    stop(server).await;
    let server = world.start_with_expiry(1, 24 * hour).await;
    assert_eq!(until(&server).await, first);
    stop(server).await;
    let server = world.start_with_expiry(1, hour / 2).await;
    assert!(until(&server).await < first);
    stop(server).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_users_register_and_sign_at_once() {
    let world = World::new(4);
    let servers = world.start_all(1..=4).await;
    until_healthy(&servers).await;
    let messages: Vec<Bytes> = (0..100).map(|it| format!("message {it}").into()).collect();
    for server in &servers[..2] {
        let registering = messages.iter().map(|message| {
            let (client, message) = (server.client.clone(), message.clone());
            tokio::spawn(async move { client.register(message).await.unwrap().new })
        });
        for registered in registering.collect::<Vec<_>>() {
            assert!(registered.await.unwrap());
        }
    }
    let signing = messages.iter().map(|message| {
        let (client, message) = (servers[0].client.clone(), message.clone());
        tokio::spawn(async move { client.sign(message, ApiEncoding::Pkcs1).await.unwrap() })
    });
    let public = small_key().group().public().clone();
    for (signed, message) in signing.collect::<Vec<_>>().into_iter().zip(&messages) {
        assert!(public.verify(message, &signed.await.unwrap()));
    }
    let log = world.audit_log(1);
    for event in ["registered", "signed"] {
        let event = format!("\"event\":\"{event}\"");
        assert_eq!(log.lines().filter(|it| it.contains(&event) && it.contains("uid")).count(), 100);
    }
    let pending = servers[0].client.pending().await.unwrap();
    assert!(pending.registrations.iter().all(|it| it.server == Some(2)));
}

/// A user who may register cannot hide a registration from those who review.
#[tokio::test(flavor = "multi_thread")]
async fn a_registration_is_not_buried_under_others() {
    let world = World::new(4);
    let servers = world.start_all(1..=4).await;
    until_healthy(&servers).await;
    let client = &servers[0].client;
    client.register(Bytes::from_static(MESSAGE)).await.unwrap();
    for number in 0..MAX_LISTED {
        client.register(format!("junk {number}").into()).await.unwrap();
    }
    let digest = MessageDigest::of(MESSAGE);
    assert_eq!(waits_at(&servers[0], digest).await, [1]);
    let total = MAX_LISTED as u64 + 1;
    until("another server shows that there are more", async || {
        let pending = servers[1].client.pending().await.unwrap();
        let of_first = pending.servers.iter().find(|it| it.server == Some(1));
        of_first.is_some_and(|it| it.registrations == total)
            && pending.registrations.len() == MAX_LISTED
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proposed_list_is_shown_at_every_server_until_it_is_withdrawn() {
    let world = World::new(4);
    let servers = world.start_all(1..=4).await;
    until_healthy(&servers).await;
    let nodes = world.nodes([4, 3, 2, 1]);
    servers[0].client.start_refresh(nodes.clone()).await.unwrap();
    let group = parse_nodes(&nodes).unwrap().digest().to_string();
    for server in &servers {
        until("it is shown", async || {
            let lists = server.client.pending().await.unwrap().lists;
            let [list] = &lists[..] else { return false };
            assert_eq!((&list.group, &list.approved_by[..], list.needed), (&group, &[1][..], 2));
            list.servers.len() == 4 && list.changes.is_empty() && !list.begun
        })
        .await;
    }
    let other = servers[1].client.withdraw_approval().await.unwrap_err();
    assert!(other.to_string().contains("has no approval to withdraw"), "{other}");
    servers[0].client.withdraw_approval().await.unwrap();
    for server in &servers {
        until("it is withdrawn", async || server.client.pending().await.unwrap().lists.is_empty())
            .await;
    }
    for event in ["refresh-approved", "approval-withdrawn"] {
        // The event follows the state that is shown.
        until("it is recorded", async || world.audit_log(1).contains(event)).await;
        let log = world.audit_log(1);
        let line = log.lines().find(|line| line.contains(event)).unwrap();
        assert!(line.contains(&group) && line.contains("\"uid\":"), "{line}");
    }
}

/// A faulty server shows at most what fits one answer, as its own, and a flood of lists changes
/// nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_floods_others_with_lists_shows_only_its_own() {
    let world = World::new(4);
    let servers = world.start_all(1..=3).await;
    let listening = listen([world.addresses[3]], &[]).await.unwrap();
    let (links, _inboxes) = QuorumLinks::start(identity(4), listening);
    let peer = QuorumPeer { key: identity(1).public(), address: world.addresses[0].into() };
    links.set_peers(std::slice::from_ref(&peer));
    until_healthy(&servers).await;
    servers[1].client.register(Bytes::from_static(MESSAGE)).await.unwrap();
    let registration = |number: u64| ReviewedRegistration {
        digest: MessageDigest::of(&number.to_be_bytes()),
        registered: UnixSeconds(number),
        until: UnixSeconds(u64::MAX),
        uid: None,
        len: None,
        first: b"\x1b[2J".to_vec(),
    };
    let newest: Vec<_> = (0..MAX_LISTED as u64).map(registration).collect();
    let list = RegistrationList { total: u64::MAX, newest }.to_answer();
    let refused = async || {
        let status = servers[0].node.handle().status(String::new());
        status.links.iter().map(|link| link.refused_messages).sum::<u64>()
    };
    until("the flood is refused", async || {
        for _ in 0..100 {
            let bytes = list.clone().into();
            // A full queue refuses it.
            let _ = links.send(&peer.key, LinkTopic::Signing, LinkLane::Urgent, bytes);
        }
        refused().await > 1_000
    })
    .await;
    until("the registration of a correct server is shown", async || {
        waits_at(&servers[0], MessageDigest::of(MESSAGE)).await == [2]
    })
    .await;
    let pending = servers[0].client.pending().await.unwrap();
    let others = pending
        .registrations
        .iter()
        .filter(|it| it.digest != MessageDigest::of(MESSAGE).to_string());
    let others: Vec<_> = others.collect();
    assert!(others.len() <= MAX_LISTED && others.iter().all(|it| it.server == Some(4)));
    assert!(servers[0].client.health().await.unwrap().ok);
}
