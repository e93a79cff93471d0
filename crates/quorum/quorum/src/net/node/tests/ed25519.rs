//! Servers that generate an Ed25519 key, with the agreement log of real servers.

use std::path::PathBuf;
use std::time::SystemTime;

use keys::AnyPublicKey;

use super::*;

impl World {
    /// Writes the bundle of servers 1 to 4, which are to generate a key.
    fn founding_bundle(&self) -> PathBuf {
        let group = parse_nodes(&self.nodes(1..=4)).unwrap();
        let bundle = QuorumBundle::founding(group, UnixSeconds::from_system(SystemTime::now()));
        let path = self.place.path().join("founding.bundle");
        ceremony_files::write_bundle(&path, &bundle).unwrap();
        path
    }

    /// The configuration of a server that starts from a bundle.
    fn config_with(&self, number: usize, bundle: &Path) -> QuorumNodeConfig {
        let mut config = self.config(number);
        (config.public_key, config.share) = (None, None);
        (config.bundle, config.delays.need) = (Some(bundle.to_owned()), Duration::from_secs(1));
        config
    }

    async fn start_with(&self, number: usize, bundle: &Path) -> Running {
        let config = self.config_with(number, bundle);
        let opened = self.open(&config).await;
        serve(&config, start(&config, opened).unwrap())
    }

    /// Whether openssl accepts an Ed25519 signature of [`MESSAGE`] by the key in this text.
    fn openssl_accepts_ed25519(&self, pem: &[u8], signature: &[u8]) -> bool {
        let place = self.place.path();
        let files = [("key.pem", pem), ("message", MESSAGE), ("signature", signature)];
        for (name, content) in files {
            fs::write(place.join(name), content).unwrap();
        }
        let verified = Process::new("openssl")
            .args(["pkeyutl", "-verify", "-pubin", "-inkey", "key.pem", "-rawin"])
            .args(["-in", "message", "-sigfile", "signature"])
            .current_dir(place)
            .output()
            .unwrap();
        verified.status.success()
    }
}

async fn stop(running: Running) {
    let Running { node, socket, .. } = running;
    drop(socket);
    node.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn four_servers_generate_an_ed25519_key_and_move_it_to_seven_others() {
    let world = World::new(11);
    let founding = world.founding_bundle();
    let mut old = Vec::new();
    for number in 1..=4 {
        old.push(world.start_with(number, &founding).await);
    }
    until_healthy(&old).await;
    let pem = old[0].client.public_key().await.unwrap();
    for server in &old[1..] {
        assert_eq!(server.client.public_key().await.unwrap(), pem);
    }
    let message = Bytes::from_static(MESSAGE);
    for server in &old[1..3] {
        assert!(server.client.register(message.clone()).await.unwrap().new);
    }
    let signature = old[1].client.sign(message.clone(), ApiEncoding::Ed25519).await.unwrap();
    assert_eq!(signature.len(), 64);
    assert!(world.openssl_accepts_ed25519(&pem, &signature));
    let refused = old[1].client.sign(message.clone(), ApiEncoding::Pkcs1).await.unwrap_err();
    assert!(matches!(refused, QuorumApiError::Refused { status: 400, .. }), "{refused}");

    // A server restarts, with the bundle at its place.
    stop(old.remove(2)).await;
    old.insert(2, world.start_with(3, &founding).await);
    until_healthy(&old).await;

    let joining = world.place.path().join("joining.bundle");
    fs::write(&joining, old[3].client.bundle().await.unwrap()).unwrap();
    // A founder that has missed the key generation is told what to do. It gets no further than to
    // the port, which is in use here.
    let mut missed = world.config_with(4, &founding);
    missed.store = world.place.path().join("missed");
    assert!(matches!(open(&missed).await.err(), Some(NodeOpenError::Listen(_))));
    missed.bundle = Some(joining.clone());
    let refused = open(&missed).await.err().unwrap();
    assert!(matches!(refused, NodeOpenError::MissedFounding { .. }), "{refused}");
    fs::remove_dir_all(world.place.path().join("missed")).unwrap();
    assert!(matches!(open(&missed).await.err(), Some(NodeOpenError::Listen(_))));

    // Seven others join with a bundle of one of the four.
    let mut new = Vec::new();
    for number in 5..=11 {
        new.push(world.start_with(number, &joining).await);
    }
    let nodes = world.nodes(5..=11);
    for server in &old[..2] {
        server.client.start_refresh(nodes.clone()).await.unwrap();
    }
    until("the key has moved", async || {
        new[6].client.health().await.is_ok_and(|it| it.ok && it.epoch == Some(2))
    })
    .await;
    until_healthy(&new).await;
    for server in &new[..3] {
        server.client.register(message.clone()).await.unwrap();
    }
    let signature = new[2].client.sign(message.clone(), ApiEncoding::Ed25519).await.unwrap();
    assert!(world.openssl_accepts_ed25519(&pem, &signature));

    // The public key alone verifies the chain.
    until("the chain has both epochs", async || {
        let headers = new[0].client.headers().await.unwrap();
        GroupStart::parse_chain(&headers).unwrap().len() == 3
    })
    .await;
    let chain = GroupStart::parse_chain(&new[0].client.headers().await.unwrap()).unwrap();
    let bytes: Vec<_> = chain.iter().map(|it| it.header.to_bytes()).collect();
    let pairs = bytes.iter().zip(&chain).map(|(bytes, it)| (&bytes[..], &it.signature[..]));
    let public = AnyPublicKey::from_pem(str::from_utf8(&pem).unwrap()).unwrap();
    let last = verify_chain(pairs, |message, signature| public.verify(message, signature));
    assert_eq!(last.unwrap().group, parse_nodes(&nodes).unwrap());

    // A server loses its disk, and gets its share from the others.
    stop(new.pop().unwrap()).await;
    fs::remove_dir_all(world.place.path().join("store-11")).unwrap();
    new.push(world.start_with(11, &joining).await);
    until("it has its share again", async || {
        new[6].client.health().await.is_ok_and(|it| it.ok && it.epoch == Some(2))
    })
    .await;
}

/// What an Ed25519 key cannot sign is not registered either, even before there is a key.
#[tokio::test(flavor = "multi_thread")]
async fn a_digest_is_not_registered_before_the_ed25519_key_is_generated() {
    let world = World::new(4);
    let founding = world.founding_bundle();
    let alone = world.start_with(1, &founding).await;
    let refused = alone.client.register(Bytes::from_static(&[7; 32])).await.unwrap_err();
    assert!(matches!(refused, QuorumApiError::Refused { status: 403, .. }), "{refused}");
    assert!(alone.client.register(Bytes::from_static(&[7; 33])).await.unwrap().new);
}

/// A server that the founding bundle does not list, and one that has lost its state, do not start.
#[tokio::test]
async fn only_servers_of_the_list_found_a_group_and_only_once() {
    let world = World::new(5);
    let founding = world.founding_bundle();
    let refused = open(&world.config_with(5, &founding)).await.err().unwrap();
    assert!(matches!(refused, NodeOpenError::NotListed { .. }), "{refused}");
    let config = world.config_with(1, &founding);
    let opened = world.open(&config).await;
    let header = opened.store.saved().unwrap().start.unwrap().header().clone();
    assert_eq!((header.epoch, opened.settings.anchor.public()), (0, None));
    drop(opened);
    // The state, without which the server would vote again with its identity key.
    let store = world.place.path().join("store-1");
    fs::write(store.join("log.sqlite"), "").unwrap();
    fs::remove_file(store.join("epochs.sqlite")).unwrap();
    let refused = open(&config).await.err().unwrap();
    assert!(matches!(refused, NodeOpenError::LostState { .. }), "{refused}");
}
