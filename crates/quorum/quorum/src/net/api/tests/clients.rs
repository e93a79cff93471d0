//! The clients of one server and of a group.

use super::*;

#[test]
fn the_client_gets_what_the_server_says() {
    let served = Served::new(Fake::default());
    let client = served.client();
    served.runtime.block_on(async {
        let message = Bytes::from_static(b"message");
        let error = client.sign(message.clone(), ApiEncoding::Pss).await.unwrap_err();
        assert!(error.is_forbidden() && error.to_string() == "not registered", "{error}");
        let registered = client.register(message.clone()).await.unwrap();
        assert_eq!(registered.digest, MessageDigest::of(&message).to_string());
        assert!(registered.new && !client.register(message.clone()).await.unwrap().new);
        assert_eq!(client.sign(message, ApiEncoding::Pss).await.unwrap(), "pss message");
        assert_eq!(client.start_refresh("[[node]]".into()).await.unwrap().epoch, 2);
        assert_eq!(client.cancel_refresh().await.unwrap(), state(RefreshStep::Cancelled));
        assert_eq!(client.refresh().await.unwrap(), state(RefreshStep::Done));
        assert_eq!(client.witnesses().await.unwrap().witnesses.len(), 4);
        assert!(client.public_key().await.unwrap().starts_with(b"-----BEGIN"));
        assert_eq!(client.headers().await.unwrap()[..], [0, 255]);
        assert_eq!(client.health().await.unwrap().height, 7);
    });
}

#[test]
fn servers_of_a_group_are_asked_in_turn() {
    let (empty, full) = (Served::new(Fake::default()), Served::new(Fake::default()));
    full.fake.registered.lock().unwrap().insert(b"message".to_vec());
    // It accepts connections, as a server that is stopped (SIGSTOP) does, and never answers.
    let hanging = empty.path().with_extension("hanging");
    let _listener = std::os::unix::net::UnixListener::bind(&hanging).unwrap();
    let missing = empty.path().with_extension("missing");
    let sign = |sockets: &[&PathBuf]| {
        let sockets: Vec<PathBuf> = sockets.iter().copied().cloned().collect();
        let client = GroupApiClient::new(&sockets);
        let message = Bytes::from_static(b"message");
        full.runtime.block_on(client.sign(&message, ApiEncoding::Pkcs1Sha512, None))
    };
    let (empty, full) = (empty.path(), full.path());
    let signed = sign(&[&missing, &hanging, &empty, &full]).unwrap();
    assert_eq!(signed, "pkcs1-sha512 message");
    // Each error names its socket, and what all say is said once.
    let refused = sign(&[&missing, &empty, &empty]).unwrap_err();
    let text = refused.to_string();
    assert!(refused.is_forbidden() && text.lines().count() == 1, "{text}");
    assert!(text.contains("is `sunder quorum node` running"), "{text}");
    assert!(text.ends_with("; not registered") && text.matches("not registered").count() == 1);
    let late = sign(&[&hanging]).unwrap_err();
    assert!(!late.is_forbidden() && late.to_string().contains("no answer from"), "{late}");
}

/// A faulty server that is asked first, and refuses for whatever reason, does not end the search.
#[test]
fn no_refusal_of_a_server_ends_the_search() {
    let right = Served::new(Fake::default());
    right.fake.registered.lock().unwrap().insert(b"message".to_vec());
    let kinds = [
        ApiRefusalKind::Malformed,
        ApiRefusalKind::Forbidden,
        ApiRefusalKind::NotFound,
        ApiRefusalKind::Conflict,
        ApiRefusalKind::Busy,
        ApiRefusalKind::Unavailable,
        ApiRefusalKind::TimedOut,
        ApiRefusalKind::Internal,
    ];
    let faulty = kinds.map(|kind| {
        let refusal = Some(ApiRefusal::new(kind, format!("no: {kind:?}")));
        Served::new(Fake { refusal, ..Fake::default() })
    });
    let sign = |sockets: &[PathBuf]| {
        let client = GroupApiClient::new(sockets);
        let message = Bytes::from_static(b"message");
        right.runtime.block_on(client.sign(&message, ApiEncoding::Pkcs1, None))
    };
    for faulty in &faulty {
        assert_eq!(sign(&[faulty.path(), right.path()]).unwrap(), "pkcs1 message");
    }
    // If no server signs, the error has all reasons.
    let all: Vec<PathBuf> = faulty.iter().map(Served::path).collect();
    let text = sign(&all).unwrap_err().to_string();
    assert!(kinds.iter().all(|kind| text.contains(&format!("no: {kind:?}"))), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
}

/// Of four servers, one may be faulty. So the request is forbidden if two say so.
#[test]
fn one_faulty_server_of_four_does_not_make_a_request_forbidden() {
    let place = TempDir::new().unwrap();
    let down = place.path().join("down");
    let forbidding = [Served::new(Fake::default()), Served::new(Fake::default())];
    let [one, two] = forbidding.each_ref().map(Served::path);
    let is_forbidden = |sockets: &[&PathBuf]| {
        let sockets: Vec<PathBuf> = sockets.iter().copied().cloned().collect();
        let message = Bytes::from_static(b"message");
        let client = GroupApiClient::new(&sockets);
        let asked = client.sign(&message, ApiEncoding::Pkcs1, None);
        forbidding[0].runtime.block_on(asked).unwrap_err().is_forbidden()
    };
    assert!(is_forbidden(&[&one]));
    assert!(is_forbidden(&[&down, &one]));
    assert!(!is_forbidden(&[&one, &down, &down, &down]));
    assert!(is_forbidden(&[&one, &down, &two, &down]));
    assert!(!is_forbidden(&[&down, &down, &down, &down]));
}

/// A signature is verified before the next server is given up: one that lies denies nothing.
#[test]
fn a_server_that_signs_falsely_is_passed_over() {
    let message = Bytes::from_static(b"message");
    let (place, runtime) = (TempDir::new().unwrap(), Runtime::new().unwrap());
    let openssl = |arguments: &str| {
        let mut command = std::process::Command::new("openssl");
        let output = command.args(arguments.split(' ')).current_dir(place.path()).output();
        let output = output.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    };
    std::fs::write(place.path().join("message"), &message).unwrap();
    openssl("genpkey -algorithm RSA -pkeyopt rsa_keygen_bits:2048 -out key");
    let pem = String::from_utf8(openssl("pkey -in key -pubout")).unwrap();
    let key = RsaPublicKey::from_pem(&pem).unwrap();
    let pkcs1 = openssl("dgst -sha256 -sign key message");
    let pss = "rsa_padding_mode:pss -sigopt rsa_pss_saltlen:32";
    let pss = openssl(&format!("dgst -sha256 -sigopt {pss} -sign key message"));
    let sha512 = openssl("dgst -sha512 -sign key message");

    let answers = [pkcs1, pss, sha512];
    let encodings = [ApiEncoding::Pkcs1, ApiEncoding::Pss, ApiEncoding::Pkcs1Sha512];
    let servers: Vec<Served> = answers
        .iter()
        .map(|answer| Served::new(Fake { signature: answer.clone(), ..Fake::default() }))
        .collect();
    for (right, encoding) in encodings.into_iter().enumerate() {
        for (index, answer) in answers.iter().enumerate() {
            assert_eq!(encoding.verify(&key, &message, answer), index == right, "{encoding:?}");
            assert!(!encoding.verify(&key, b"another", answer));
        }
        let sign = |order: &[usize]| {
            let sockets: Vec<PathBuf> = order.iter().map(|index| servers[*index].path()).collect();
            let client = GroupApiClient::new(&sockets);
            runtime.block_on(client.sign(&message, encoding, Some(&key)))
        };
        let [first, second] = [(right + 1) % 3, (right + 2) % 3];
        assert_eq!(sign(&[first, second, right]).unwrap(), answers[right]);
        let wrong = sign(&[first, second]).unwrap_err();
        let text = wrong.to_string();
        assert!(!wrong.is_forbidden() && text.matches("by the group's key").count() == 2, "{text}");
    }
}

#[test]
fn without_a_server_the_client_says_so() {
    let place = TempDir::new().unwrap();
    let client = QuorumApiClient::new(&place.path().join("socket"));
    let error = Runtime::new().unwrap().block_on(client.health()).unwrap_err().to_string();
    assert!(error.contains("is `sunder quorum node` running"), "{error}");
    assert_eq!(error.lines().count(), 1);
}
