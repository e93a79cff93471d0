//! The page that `sunder status` shows for a proxy or a server.

use console::table::{ColumnAlignment, aligned};
use micss::status::{
    BypassStatus, InterceptionStatus, MicssStatus, ServerLimitStatus, StreamChannelState,
    StreamChannelStatus, StreamCounts, StreamRedundancy, StreamServerStatus, UdpStatus,
};
use service::status::{ServiceProblem, format_age};

use super::StreamServiceStatus;
use crate::commands::status::{UNKNOWN, format_number, rate};

/// The columns of channels.
const COLUMNS: [(&str, ColumnAlignment); 12] = [
    ("channel", ColumnAlignment::Left),
    ("server", ColumnAlignment::Left),
    ("state", ColumnAlignment::Left),
    ("ready", ColumnAlignment::Right),
    ("connected", ColumnAlignment::Right),
    ("not", ColumnAlignment::Right),
    ("round trip", ColumnAlignment::Right),
    ("Mbit/s out", ColumnAlignment::Right),
    ("in", ColumnAlignment::Right),
    ("behind", ColumnAlignment::Right),
    ("broken", ColumnAlignment::Right),
    ("changed", ColumnAlignment::Right),
];

/// The page of a proxy or a server, with the rates since `before`.
pub(crate) fn page(
    kind: &str,
    now: &StreamServiceStatus,
    before: Option<&StreamServiceStatus>,
) -> String {
    let before = before.map(|before| &before.status);
    let StreamServiceStatus { name, status } = now;
    let running = format!("{kind} {name}  running for {:.0} s", status.uptime_s);
    let channels = aligned(&COLUMNS.map(|(_, side)| side), &channels(status, before));
    let limits = status.limits.as_ref().map(limits).unwrap_or_default();
    let interception = status.interception.as_ref().map(interception).unwrap_or_default();
    let servers = servers(&status.servers);
    let bypass = status.bypass.as_ref().map(bypass).unwrap_or_default();
    let udp = status.udp.as_ref().map(udp).unwrap_or_default();
    let streams = streams(&status.streams, &status.redundancy);
    format!("{running}\n\n  {streams}\n{limits}{interception}{udp}{bypass}{servers}\n{channels}")
}

/// What is wrong with a proxy or a server, and what to do.
pub(super) fn problems(now: &MicssStatus) -> Vec<ServiceProblem> {
    let mut problems = Vec::new();
    if now.interception.is_some_and(|interception| !interception.in_force) {
        let what = "the rules of interception are missing: connections leave in the clear";
        let remedy = "find out which program removes them, and start the proxy again";
        problems.push(ServiceProblem::new(what, None, remedy));
    }
    if now.redundancy.waiting > 0 {
        let what = format!("streams wait for a channel: {}", now.redundancy.waiting);
        problems.push(ServiceProblem::new(what, None, "restore the channels that are lost"));
    }
    problems.extend(now.servers.iter().enumerate().filter_map(server_problem));
    problems.extend(now.channels.iter().enumerate().flat_map(channel_problems));
    problems
}

/// A server that new streams cannot use.
fn server_problem((index, server): (usize, &StreamServerStatus)) -> Option<ServiceProblem> {
    let why = server.gone.as_deref()?;
    let what = format!("server {} ({}) is gone: {why}", index + 1, server.channels.join(", "));
    Some(ServiceProblem::new(what, None, "check the server and its networks"))
}

/// A problem for each peer that has lost the channel, or one if this end has lost it.
fn channel_problems((index, channel): (usize, &StreamChannelStatus)) -> Vec<ServiceProblem> {
    let problem = |what: String, since_s| {
        let text = format!("channel {} ({}){what}", index + 1, channel.server);
        ServiceProblem::new(text, since_s, "check its network; sunder doctor tests it")
    };
    let peers = channel.lost.iter().map(|peer| {
        let (name, why, streams) = (&peer.peer, &peer.why, peer.streams);
        let what = format!(": {name} is lost, {why}; {streams} of its streams use the channel");
        problem(what, Some(peer.for_s))
    });
    let mut problems: Vec<ServiceProblem> = peers.collect();
    let unnamed = channel.peers_down.saturating_sub(problems.len() as u64);
    if unnamed > 0 {
        problems.push(problem(format!(": {unnamed} more peers are lost"), None));
    }
    if channel.state == StreamChannelState::Down && problems.is_empty() {
        let why = channel.why.as_deref().unwrap_or("no answer");
        problems.push(problem(format!(" is lost: {why}"), channel.state_s));
    }
    problems
}

/// A server's limits, a line for each: the current value, the limit, and how often it was reached.
fn limits(limits: &ServerLimitStatus) -> String {
    let mib = |bytes: u64| bytes.div_ceil(1 << 20);
    let counts = |counts: &[(u64, &str)]| {
        let reached = counts.iter().filter(|(count, _)| *count > 0);
        let named = reached.map(|(count, what)| format!(", {count} {what}"));
        named.collect::<String>()
    };
    let waiting = counts(&[
        (limits.waiting_evicted, "closed to make room (max_waiting)"),
        (limits.turned_away, "rejected because of their terms"),
    ]);
    let memory = counts(&[
        (limits.out_of_memory, "times out of memory (max_memory_mib)"),
        (limits.streams_evicted, "streams ended to make room"),
    ]);
    format!(
        "  connections without a stream: {} of {}{waiting}\n  memory for records: {} of {} MiB{memory}\n",
        limits.waiting,
        limits.max_waiting,
        mib(limits.memory_bytes),
        mib(limits.max_memory_bytes),
    )
}

fn udp(udp: &UdpStatus) -> String {
    let UdpStatus { associations, opened, intercepted, evicted, .. } = udp;
    let UdpStatus { to_channels, from_channels, dropped, .. } = udp;
    let open = match associations {
        0 => "no association".to_owned(),
        1 => "1 association".to_owned(),
        more => format!("{more} associations"),
    };
    let counts = [(intercepted, "of these intercepted"), (evicted, "ended to make room")];
    let counts = counts.into_iter().filter(|(count, _)| **count > 0);
    let named = counts.map(|(count, what)| format!(", {count} {what}"));
    let counts: String = named.collect();
    format!(
        "  UDP: {open} open of {opened}{counts}; datagrams: {to_channels} to the channels, \
         {from_channels} from them, {dropped} dropped\n"
    )
}

fn bypass(bypass: &BypassStatus) -> String {
    let BypassStatus { open, opened, failed } = bypass;
    let open = if *open == 0 { "none".to_owned() } else { open.to_string() };
    format!("  bypass: {open} open, {opened} connected directly since the start, {failed} failed\n")
}

/// Several servers of a client, a line for each: whether it carries new streams, since when and
/// why.
fn servers(servers: &[StreamServerStatus]) -> String {
    let line = |(index, server): (usize, &StreamServerStatus)| {
        let name = format!("server {} ({})", index + 1, server.channels.join(", "));
        let age = |seconds: Option<f64>| {
            seconds.map(|seconds| format!(" for {}", format_age(seconds))).unwrap_or_default()
        };
        let reason = server.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
        match (&server.gone, server.is_used) {
            (None, true) => {
                format!("  {name}: USED by new streams{}{reason}\n", age(server.used_s))
            }
            (None, false) => format!("  {name}: works{}, not used\n", age(server.working_s)),
            (Some(why), true) => format!("  {name}: GONE, and so are all others: {why}\n"),
            (Some(why), false) => format!("  {name}: GONE: {why}\n"),
        }
    };
    servers.iter().enumerate().map(line).collect()
}

fn interception(interception: &InterceptionStatus) -> String {
    let InterceptionStatus { port, in_force, restored, udp } = interception;
    let protocols = if *udp { ", TCP and UDP" } else { "" };
    let missing = if *in_force { "" } else { ", RULES MISSING: in the clear" };
    let restored = match restored {
        0 => String::new(),
        times => format!(", rules removed by another program and restored: {times}"),
    };
    format!("  interception: at port {port}{protocols}{missing}{restored}\n")
}

fn streams(streams: &StreamCounts, redundancy: &StreamRedundancy) -> String {
    let StreamCounts { under_way, finished, refused, broken, tampered, over_limit } = streams;
    let counts = [
        (*finished, "finished"),
        (*refused, "refused"),
        (*broken, "broken"),
        (*tampered, "TAMPERED WITH"),
        (*over_limit, "over the limit"),
    ];
    let named = counts.iter().filter(|(count, _)| *count > 0);
    let named = named.map(|(count, what)| format!(", {count} {what}"));
    let named: String = named.collect();
    format!("streams: {under_way} open{}{named}", spare_channels(redundancy))
}

/// What open streams can still lose, if some can lose a channel or wait for one.
fn spare_channels(StreamRedundancy { waiting, spare }: &StreamRedundancy) -> String {
    let waiting = match waiting {
        0 => None,
        1 => Some("1 WAITS for a channel".to_owned()),
        more => Some(format!("{more} WAIT for a channel")),
    };
    let spare = spare.iter().enumerate().filter(|(_, streams)| **streams > 0);
    let spare: Vec<_> = spare.collect();
    if waiting.is_none() && spare.iter().all(|(channels, _)| *channels == 0) {
        return String::new();
    }
    let lose = |(channels, streams): (usize, &u64)| match channels {
        0 => format!("{streams} can lose no channel"),
        1 => format!("{streams} can lose 1 channel"),
        more => format!("{streams} can lose {more} channels"),
    };
    let parts: Vec<String> = waiting.into_iter().chain(spare.into_iter().map(lose)).collect();
    format!(" ({})", parts.join(", "))
}

/// The state of a channel and its age.
fn state(channel: &StreamChannelStatus) -> String {
    let age =
        channel.state_s.map(|seconds| format!(" {}", format_age(seconds))).unwrap_or_default();
    match (channel.state, channel.peers_down) {
        (StreamChannelState::Unknown, _) => UNKNOWN.to_owned(),
        (StreamChannelState::Up, 0) => format!("up{age}"),
        (StreamChannelState::Up, down) => format!("up, {down} of {} peers down", channel.peers),
        (StreamChannelState::Down, _) => format!("DOWN{age}"),
    }
}

fn channels(now: &MicssStatus, before: Option<&MicssStatus>) -> Vec<[String; 12]> {
    let row = |(index, channel): (usize, &StreamChannelStatus)| {
        // After a reload the channels may differ.
        let same = |before: &&StreamChannelStatus| before.server == channel.server;
        let old = before.and_then(|before| before.channels.get(index)).filter(same);
        let since = before.map_or(0.0, |before| before.uptime_s);
        let speed = |bytes: fn(&StreamChannelStatus) -> u64| {
            let before = old.map(|old| (since, bytes(old)));
            format_number(rate((now.uptime_s, bytes(channel)), before), 1, "")
        };
        let waited = old.map(|old| (channel.waited_s - old.waited_s) / (now.uptime_s - since));
        [
            (index + 1).to_string(),
            channel.server.clone(),
            state(channel),
            channel.ready.to_string(),
            channel.connected.to_string(),
            channel.unconnected.to_string(),
            format_number(channel.rtt_ms, 1, " ms"),
            speed(|channel| channel.sent_bytes),
            speed(|channel| channel.received_bytes),
            format_number(waited.map(|waited| 100.0 * waited), 0, " %"),
            channel.broken.to_string(),
            channel.tampered.to_string(),
        ]
    };
    let rows = now.channels.iter().enumerate().map(row);
    [COLUMNS.map(|(name, _)| name.to_owned())].into_iter().chain(rows).collect()
}

#[cfg(test)]
mod tests {
    use micss::status::LostPeer;

    use super::*;
    use crate::commands::streams::tests::channel;

    fn one() -> StreamServiceStatus {
        let channel = StreamChannelStatus {
            server: "192.0.2.1:6522".into(),
            state: StreamChannelState::Up,
            state_s: Some(1.0),
            ..channel()
        };
        let (streams, channels) = (StreamCounts::default(), vec![channel]);
        let (redundancy, limits, interception) = (StreamRedundancy::default(), None, None);
        let status = MicssStatus {
            uptime_s: 1.0,
            listen: Vec::new(),
            streams,
            redundancy,
            limits,
            interception,
            bypass: None,
            udp: None,
            servers: Vec::new(),
            server_switches: 0,
            channels,
        };
        StreamServiceStatus { name: "office".into(), status }
    }

    fn last_line(page: &str) -> Vec<&str> {
        page.lines().last().unwrap().split("  ").map(str::trim).filter(|w| !w.is_empty()).collect()
    }

    #[test]
    fn rates_are_computed_from_counter_differences() {
        let before = one();
        let mut now = one();
        now.status.uptime_s = 3.0;
        now.status.streams = StreamCounts { under_way: 2, tampered: 1, ..StreamCounts::default() };
        let channel = &mut now.status.channels[0];
        (channel.sent_bytes, channel.received_bytes) = (2_000_000, 500_000);
        (channel.rtt_ms, channel.waited_s, channel.tampered) = (Some(12.5), 0.5, 1);
        let first = page("proxy", &now, None);
        let row =
            ["1", "192.0.2.1:6522", "up 1 s", "4", "10", "1", "12.5 ms", "–", "–", "–", "0", "1"];
        assert_eq!(last_line(&first), row, "{first}");
        assert!(first.contains("streams: 2 open, 1 TAMPERED WITH\n"), "{first}");
        let redundancy = StreamRedundancy { waiting: 1, spare: vec![2, 3] };
        let text = "streams: 2 open (1 WAITS for a channel, 2 can lose no channel, \
            3 can lose 1 channel), 1 TAMPERED WITH";
        assert_eq!(streams(&now.status.streams, &redundancy), text);
        let redundancy = StreamRedundancy { waiting: 0, spare: vec![2] };
        let text = "streams: 2 open, 1 TAMPERED WITH";
        assert_eq!(streams(&now.status.streams, &redundancy), text);
        let second = page("proxy", &now, Some(&before));
        let row = [
            "1",
            "192.0.2.1:6522",
            "up 1 s",
            "4",
            "10",
            "1",
            "12.5 ms",
            "8.0",
            "2.0",
            "25 %",
            "0",
            "1",
        ];
        assert_eq!(last_line(&second), row, "{second}");
    }

    #[test]
    fn interception_of_udp_and_its_flows_are_shown() {
        let mut proxy = one();
        let interception = InterceptionStatus { port: 522, in_force: true, restored: 0, udp: true };
        proxy.status.interception = Some(interception);
        let flows =
            UdpStatus { associations: 3, opened: 9, intercepted: 2, ..UdpStatus::default() };
        proxy.status.udp = Some(UdpStatus { evicted: 4, ..flows });
        let shown = page("proxy", &proxy, None);
        assert!(shown.contains("  interception: at port 522, TCP and UDP\n"), "{shown}");
        let line = "  UDP: 3 associations open of 9, 2 of these intercepted, 4 ended to make room; \
                    datagrams: 0 to the channels, 0 from them, 0 dropped\n";
        assert!(shown.contains(line), "{shown}");
    }

    #[test]
    fn rules_that_are_missing_are_named() {
        let line = |in_force, restored| {
            let mut proxy = one();
            proxy.status.interception =
                Some(InterceptionStatus { port: 522, in_force, restored, udp: false });
            page("proxy", &proxy, None).lines().nth(3).unwrap().to_owned()
        };
        assert_eq!(line(true, 0), "  interception: at port 522");
        let restored =
            "  interception: at port 522, rules removed by another program and restored: 2";
        assert_eq!(line(true, 2), restored);
        assert!(line(false, 0).ends_with("port 522, RULES MISSING: in the clear"));
    }

    #[test]
    fn the_server_of_new_streams_is_named() {
        let server = |host: &str| StreamServerStatus {
            channels: vec![format!("192.0.2.{host}:7000"), format!("198.51.100.{host}:7000")],
            is_used: false,
            used_s: None,
            reason: None,
            working_s: None,
            gone: Some("no answer for 3 s".into()),
        };
        let mut proxy = one();
        let reason = Some("server 1 is gone".to_owned());
        let used = StreamServerStatus { is_used: true, reason, gone: None, ..server("2") };
        let used = StreamServerStatus { used_s: Some(12.0), working_s: Some(90.0), ..used };
        proxy.status.servers = vec![server("1"), used];
        let page = page("proxy", &proxy, None);
        for line in [
            "  server 1 (192.0.2.1:7000, 198.51.100.1:7000): GONE: no answer for 3 s\n",
            "  server 2 (192.0.2.2:7000, 198.51.100.2:7000): USED by new streams for 12 s: server 1 is \
             gone\n",
        ] {
            assert!(page.contains(line), "{page}");
        }
        let problems: Vec<String> =
            problems(&proxy.status).iter().map(ToString::to_string).collect();
        assert!(problems[0].starts_with("server 1 (192.0.2.1:7000, "), "{problems:?}");
    }

    #[test]
    fn limits_that_were_reached_are_named() {
        let mut server = one();
        let limits =
            ServerLimitStatus { waiting: 3, max_waiting: 8192, ..ServerLimitStatus::default() };
        server.status.limits = Some(ServerLimitStatus { max_memory_bytes: 512 << 20, ..limits });
        let calm = page("serve", &server, None);
        assert!(calm.contains("\n  connections without a stream: 3 of 8192\n"), "{calm}");
        assert!(calm.contains("\n  memory for records: 0 of 512 MiB\n"), "{calm}");
        let limits = ServerLimitStatus { waiting_evicted: 7, out_of_memory: 5, ..limits };
        server.status.limits =
            Some(ServerLimitStatus { streams_evicted: 4, memory_bytes: 1, ..limits });
        let busy = page("serve", &server, None);
        assert!(busy.contains("of 8192, 7 closed to make room (max_waiting)\n"), "{busy}");
        let memory = "records: 1 of 0 MiB, 5 times out of memory (max_memory_mib), 4 streams ended";
        assert!(busy.contains(memory), "{busy}");
    }

    #[test]
    fn lost_channels_and_peers_are_named() {
        let mut now = one();
        let channel = &mut now.status.channels[0];
        (channel.state, channel.state_s) = (StreamChannelState::Down, Some(125.0));
        channel.why = Some("no answer".into());
        let proxy = page("proxy", &now, None);
        assert!(proxy.contains("  DOWN 2 min  "), "{proxy}");
        let shown = |now: &StreamServiceStatus| {
            problems(&now.status).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let line = "channel 1 (192.0.2.1:6522) is lost: no answer (for 2 min): check its network; \
                    sunder doctor tests it";
        assert_eq!(shown(&now), [line]);

        let channel = &mut now.status.channels[0];
        (channel.state, channel.peers, channel.peers_down) = (StreamChannelState::Up, 9, 2);
        let peer = "192.0.2.9".to_owned();
        channel.lost = vec![LostPeer { peer, for_s: 3.0, why: "no answer".into(), streams: 4 }];
        let serve = page("serve", &now, None);
        assert!(serve.contains("  up, 2 of 9 peers down  "), "{serve}");
        let [peer, others] = &shown(&now)[..] else { panic!("{:?}", shown(&now)) };
        let line = "channel 1 (192.0.2.1:6522): 192.0.2.9 is lost, no answer; 4 of its streams use \
                    the channel (for 3 s): check";
        assert!(peer.starts_with(line), "{peer}");
        assert!(others.starts_with("channel 1 (192.0.2.1:6522): 1 more peers are lost: check"));
    }
}
