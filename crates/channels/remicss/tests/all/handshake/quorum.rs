//! Associations that begin with the channels that answer, and are extended by those that answer
//! later.

use model::ChannelSubset;

use super::*;

/// Of three channels two are enough.
fn two_of_three() -> TunnelTerms {
    terms(3).with_min_channels(2).unwrap()
}

fn set(channels: &[usize]) -> ChannelSubset {
    channels.iter().copied().collect()
}

/// Two ends with these working channels, from `now` until the client's event. Returns its time.
fn run(
    client: &mut TunnelHandshakeClient,
    server: &mut TunnelHandshakeServer,
    mut now: Duration,
    works: impl Fn(usize, Duration) -> bool,
) -> (TunnelClientEvent, Duration) {
    loop {
        client.handle_timeout(now);
        server.handle_timeout(now);
        exchange(client, server, now, |channel, _| !works(channel, now));
        if let Some(event) = client.poll_event() {
            return (event, now);
        }
        now = client.poll_timeout().unwrap();
    }
}

fn members(event: TunnelClientEvent, server: &mut TunnelHandshakeServer) -> ChannelSubset {
    let TunnelClientEvent::Associated(ours) = event else { panic!("{event:?}") };
    let (theirs, addresses) = associated(server).unwrap();
    assert!(keys_agree(&ours, &theirs));
    for (channel, known) in addresses.into_iter().enumerate() {
        let is_known = known == address(0, channel);
        assert_eq!(is_known, ours.members.contains(channel));
    }
    ours.members
}

#[test]
fn any_two_of_three_are_enough_and_a_third_is_waited_for_a_second() {
    for missing in 0..3 {
        let terms = two_of_three();
        let (mut client, mut server) = (client(terms, None, NOW), server(terms, peer(3)));
        let works = |channel, _| channel != missing;
        let (event, at) = run(&mut client, &mut server, NOW, works);
        assert_eq!(at, NOW + Duration::from_secs(1));
        let others: ChannelSubset = (0..3).filter(|channel| *channel != missing).collect();
        assert_eq!(members(event, &mut server), others);
    }
    // It is included if it answers in time, and the others do not wait for it then.
    let terms = two_of_three();
    let (mut client, mut server) = (client(terms, None, NOW), server(terms, peer(3)));
    let late = NOW + Duration::from_millis(700);
    let (event, at) =
        run(&mut client, &mut server, NOW, |channel, now| channel != 1 || now >= late);
    assert_eq!((members(event, &mut server), at), (set(&[0, 1, 2]), NOW + 3 * RETRY_INTERVAL));
}

#[test]
fn fewer_channels_than_min_channels_do_not_associate() {
    let terms = two_of_three();
    let (mut client, mut server) = (client(terms, None, NOW), server(terms, peer(3)));
    let (event, at) = run(&mut client, &mut server, NOW, |channel, _| channel == 2);
    assert_eq!(at, NOW + HANDSHAKE_TIMEOUT);
    let expected = TunnelClientFailure::NoAnswer { channels: vec![0, 1], min_channels: 2, all: 3 };
    assert_eq!(failure(&event), &expected);
}

#[test]
fn each_end_enforces_its_own_min_channels() {
    let terms = two_of_three();
    let (mut client, mut server) = (client(terms, None, NOW), server(self::terms(3), peer(3)));
    let (event, _) = run(&mut client, &mut server, NOW, |channel, _| channel != 0);
    assert_eq!(
        failure(&event),
        &TunnelClientFailure::NoConfirm { channels: vec![1, 2], members: 2 }
    );
    assert_eq!(refusals(&mut server)[0], TunnelClientRefusal::Terms(TermsMismatch::TooFew(2)));
    let (mut strict, mut server) =
        (super::client(self::terms(3), None, NOW), super::server(terms, peer(3)));
    let (event, _) = run(&mut strict, &mut server, NOW, |channel, _| channel != 0);
    let expected = TunnelClientFailure::NoAnswer { channels: vec![0], min_channels: 3, all: 3 };
    assert_eq!(failure(&event), &expected);
    // If all work, they are all included.
    let (event, at) =
        run(&mut super::client(self::terms(3), None, NOW), &mut server, NOW, |_, _| true);
    assert_eq!((members(event, &mut server), at), (set(&[0, 1, 2]), NOW));
}

#[test]
fn a_member_that_does_not_confirm_is_left_out_soon() {
    let terms = two_of_three();
    let (mut first, mut server) = (client(terms, None, NOW), server(terms, peer(3)));
    let mut now = NOW;
    let event = loop {
        first.handle_timeout(now);
        // Its lists are lost.
        exchange(&mut first, &mut server, now, |channel, bytes| {
            channel == 1 && bytes[0] >> 4 == 10
        });
        if let Some(event) = first.poll_event() {
            break event;
        }
        now = first.poll_timeout().unwrap();
    };
    assert_eq!(now, NOW + Duration::from_secs(3));
    assert!(matches!(failure(&event), TunnelClientFailure::NoConfirm { .. }));
    let mut second = client(terms, None, now).without(set(&[1]));
    let (event, at) = run(&mut second, &mut server, now, |_, _| true);
    assert_eq!((members(event, &mut server), at), (set(&[0, 2]), now));
    // At most the channels that are not needed are left out.
    let mut third = client(terms, None, now).without(set(&[0, 1]));
    let (event, _) = run(&mut third, &mut server, now, |_, _| true);
    assert_eq!(members(event, &mut server), set(&[0, 1, 2]));
}

#[test]
fn an_association_is_extended_when_a_missing_channel_answers() {
    let (terms, mut server) = (two_of_three(), server(two_of_three(), peer(3)));
    let mut client = client(terms, None, NOW).extending(set(&[2]));
    client.set_needed(set(&[0, 1]), NOW);
    let back = NOW + Duration::from_millis(1_200);
    let (mut now, mut asked) = (NOW, Vec::new());
    let event = loop {
        client.handle_timeout(now);
        exchange(&mut client, &mut server, now, |channel, _| {
            asked.push((now, channel));
            channel == 2 && now < back
        });
        if let Some(event) = client.poll_event() {
            break event;
        }
        now = client.poll_timeout().unwrap();
    };
    assert_eq!(members(event, &mut server), set(&[0, 1, 2]));
    let took = now.saturating_sub(back);
    assert!(took <= Duration::from_millis(500), "{took:?}");
    let (before, after): (Vec<_>, Vec<_>) = asked.iter().partition(|(at, _)| *at < back);
    assert_eq!(before.len(), 3, "twice a second");
    assert!(before.iter().all(|(_, channel)| *channel == 2), "the others are not asked before");
    assert!(after.iter().all(|(at, _)| *at == now));
}

#[test]
fn an_association_is_not_extended_without_a_channel_that_is_up() {
    let (terms, mut server) = (two_of_three(), server(two_of_three(), peer(3)));
    let works = |channel, _| channel != 1;
    let extending = || client(terms, None, NOW).extending(set(&[2]));
    let mut client = extending();
    client.set_needed(set(&[0, 1]), NOW);
    let (event, at) = run(&mut client, &mut server, NOW, works);
    assert!(matches!(failure(&event), TunnelClientFailure::NoAnswer { .. }));
    assert_eq!(at, NOW + Duration::from_secs(5));
    // A channel that is down is left out.
    let mut client = extending();
    client.set_needed(set(&[0]), NOW);
    let (event, at) = run(&mut client, &mut server, NOW, works);
    assert_eq!(members(event, &mut server), set(&[0, 2]));
    assert_eq!(at, NOW + Duration::from_millis(300));
}

#[test]
fn a_replayed_list_of_some_channels_is_only_confirmed() {
    let (terms, mut datagrams) = (two_of_three(), Vec::new());
    let (mut client, mut server) = (client(terms, None, NOW), server(terms, peer(3)));
    client.handle_timeout(NOW);
    exchange(&mut client, &mut server, NOW, |channel, _| channel == 1);
    let now = NOW + Duration::from_secs(1);
    client.handle_timeout(now);
    exchange(&mut client, &mut server, now, |channel, bytes| {
        datagrams.push((channel, bytes.to_vec()));
        channel == 1
    });
    assert!(associated(&mut server).is_some());
    datagrams.retain(|(_, bytes)| bytes[0] >> 4 == 10);
    assert_eq!(datagrams.len(), 2);
    for (channel, list) in &datagrams {
        for at in 0..3 {
            server.handle_datagram(at, address(0, at), list, now);
            let confirms = answers(&mut server);
            assert_eq!(confirms.len(), usize::from(at == *channel), "{channel} at {at}");
        }
    }
    assert!(associated(&mut server).is_none());
}

/// The attacker controls fewer channels than are needed; others fail at random. `SUNDER_SEEDS=N`
/// runs as many seeds.
#[test]
fn an_attacker_on_fewer_than_min_channels_excludes_nothing() {
    let runs = sim::run_seeds(2_000, |seed| {
        let mut rng = SeededRng::new(seed ^ 0xc4a7);
        let n = 3 + u8::try_from(seed % 3).unwrap();
        let least = 2 + u8::try_from(rng.index(usize::from(n) - 2)).unwrap();
        let terms = terms(n).with_min_channels(least).unwrap();
        let count = 1 + rng.index(usize::from(least) - 1);
        let held: ChannelSubset =
            std::iter::repeat_with(|| rng.index(n.into())).take(count).collect();
        let mut scenario = Scenario::of(seed, terms, Some(Adversary::on(held, n, rng)));
        scenario.cut_channels();
        (scenario.run(), scenario.members().is_some_and(|members| members < n.into()))
    });
    let count = |outcome: Outcome| runs.iter().filter(|run| run.0 == outcome).count();
    let [completed, server_only, neither] =
        [Outcome::Completed, Outcome::ServerOnly, Outcome::Neither].map(count);
    let fewer = runs.iter().filter(|run| run.1).count();
    println!("{completed} completed, {fewer} of them over some channels");
    println!("{server_only} at the server only, {neither} neither");
    assert!(50 * completed.min(fewer).min(server_only).min(neither) > runs.len());
}
