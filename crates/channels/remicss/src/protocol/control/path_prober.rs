//! Path datagrams of all channels: MTU discovery, challenges, and answers to the peer.

use std::collections::VecDeque;
use std::fmt::{self, Display, Formatter};
use std::time::Duration;

use model::ChannelSubset;
use udp::{BlackHole, MAX_MTU, MIN_MTU, MtuProbe, PathMtuDiscovery};

use crate::protocol::wire::datagram::MAX_CHANNELS;
use crate::protocol::wire::path::{PathDatagram, PathDatagramError, PathDatagramKind};
use crate::protocol::wire::tokens::TokenKey;

/// The maximum number of answers of each kind that wait to be sent on a channel. The oldest are
/// evicted. So replayed probes do not suppress answers on other channels, or answers to challenges.
const MAX_ANSWERS: usize = 8;

/// The path datagrams of all channels.
pub(crate) struct PathProber {
    discoveries: Vec<PathMtuDiscovery>,
    /// The token keys of both directions.
    outgoing: TokenKey,
    incoming: TokenKey,
    answers: VecDeque<(usize, PathDatagram)>,
    /// The channels on which packets are sent.
    up: ChannelSubset,
    /// The number of long datagrams that were sent under these keys on each channel.
    long_datagrams: [u64; MAX_CHANNELS],
    /// The last result of [`Self::poll_limit`].
    limit: Option<DatagramLimit>,
    /// Each channel's MTU as of the last call of [`Self::poll_change`].
    reported: Vec<PathMtu>,
}

/// The MTU of a channel's path in the direction in which this end sends. Lengths are those of IP
/// packets, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathMtu {
    /// The longest packet that is known to arrive. `None` until it was measured.
    pub mtu: Option<u16>,
    /// Set while packets are lost that arrived before, because of their length.
    pub black_hole: Option<BlackHole>,
    /// Whether [`Self::mtu`] is provisional, since the MTU in a black hole is searched.
    pub is_searching: bool,
    /// If probes of the MTU are overdue, when such a packet was last known to arrive. Since then
    /// packets may have been lost because of their length, or by chance.
    pub suspected_since: Option<Duration>,
}

/// The MTU of a channel's path has changed. Its text is a line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathMtuChange {
    /// The channel's index.
    pub channel: usize,
    /// The former MTU.
    pub former: PathMtu,
    /// The MTU.
    pub now: PathMtu,
}

impl PathMtuChange {
    /// Whether packets are lost that arrived before.
    pub fn is_warning(&self) -> bool {
        self.now.is_searching
    }

    /// Whether it says only what is usual.
    pub fn is_routine(&self) -> bool {
        self.former.mtu.is_none() && self.now.mtu == Some(MAX_MTU)
    }
}

impl Display for PathMtuChange {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        let (number, mtu) = (self.channel + 1, self.now.mtu.unwrap_or(MIN_MTU));
        write!(formatter, "channel {number}: ")?;
        match self.now.black_hole {
            Some(BlackHole { former_mtu, .. }) if self.now.is_searching => write!(
                formatter,
                "packets of {former_mtu} bytes no longer arrive, but shorter ones do: searching \
                 for the path's MTU, using {mtu} meanwhile"
            ),
            Some(BlackHole { former_mtu, .. }) => {
                write!(formatter, "the path's MTU is {mtu}, and was {former_mtu}")
            }
            None => write!(formatter, "the path's MTU is {mtu}"),
        }
    }
}

/// The maximum length of datagrams with shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DatagramLimit {
    /// The length as UDP payload, in bytes: all channels that are up carry it.
    pub len: usize,
    /// Whether it is the result of searches. Otherwise one has not ended, and the length may
    /// increase soon.
    pub is_measured: bool,
}

impl PathProber {
    /// `headers` is the length of the headers of IP and UDP on each channel.
    pub(crate) fn new(outgoing: TokenKey, incoming: TokenKey, headers: &[u16]) -> Self {
        let discoveries = headers.iter().map(|headers| PathMtuDiscovery::new(*headers)).collect();
        Self {
            discoveries,
            outgoing,
            incoming,
            answers: VecDeque::new(),
            up: ChannelSubset::EMPTY,
            long_datagrams: [0; MAX_CHANNELS],
            limit: None,
            reported: vec![PathMtu::default(); headers.len()],
        }
    }

    /// The same, with the MTUs that were known before, under the keys of the previous association.
    /// They are searched again.
    #[must_use]
    pub(crate) fn with_paths_of(mut self, before: Self) -> Self {
        (self.discoveries, self.reported) = (before.discoveries, before.reported);
        self.discoveries.iter_mut().for_each(PathMtuDiscovery::restart);
        self
    }

    /// Sets the channels on which packets are sent. One that is up again may have another path.
    pub(crate) fn set_up(&mut self, up: ChannelSubset) {
        let before = std::mem::replace(&mut self.up, up);
        for channel in up.iter().filter(|channel| !before.contains(*channel)) {
            self.restart(channel);
        }
    }

    /// Called when the channel may have another path.
    pub(crate) fn restart(&mut self, channel: usize) {
        if let Some(discovery) = self.discoveries.get_mut(channel) {
            discovery.restart();
        }
    }

    /// Updates the number of long datagrams that were sent on each channel.
    pub(crate) fn handle_sent(&mut self, long_datagrams: &[u64; MAX_CHANNELS]) {
        let counts = long_datagrams.iter().zip(&mut self.long_datagrams);
        for (discovery, (now, before)) in self.discoveries.iter_mut().zip(counts) {
            let sent = now.saturating_sub(std::mem::replace(before, *now));
            if sent > 0 {
                discovery.handle_long_sent(sent);
            }
        }
    }

    /// Whether a datagram is a path datagram with a right token.
    pub(crate) fn recognises(&self, channel: usize, bytes: &[u8]) -> bool {
        PathDatagram::open(bytes, &self.incoming, channel).is_ok()
    }

    /// Handles a path datagram that arrived on a channel.
    ///
    /// Returns the identifier of the challenge that it answers, if it answers one.
    ///
    /// # Errors
    /// If it is not from the peer. Nothing changes then.
    pub(crate) fn handle_datagram(
        &mut self,
        channel: usize,
        bytes: &[u8],
        now: Duration,
    ) -> Result<Option<u64>, PathDatagramError> {
        let Some(discovery) = self.discoveries.get_mut(channel) else { return Ok(None) };
        let datagram = PathDatagram::open(bytes, &self.incoming, channel)?;
        match datagram.answer() {
            Some(answer) => self.queue(channel, answer),
            None if datagram.kind == PathDatagramKind::ChallengeAnswer => {
                return Ok(Some(datagram.id));
            }
            None => {
                discovery.handle_answer(MtuProbe { id: datagram.id, length: datagram.length }, now);
            }
        }
        Ok(None)
    }

    fn queue(&mut self, channel: usize, answer: PathDatagram) {
        let is_like = |(other, waiting): &&(usize, PathDatagram)| {
            (*other, waiting.kind) == (channel, answer.kind)
        };
        if self.answers.iter().filter(is_like).count() >= MAX_ANSWERS
            && let Some(oldest) = self.answers.iter().position(|waiting| is_like(&waiting))
        {
            self.answers.remove(oldest);
        }
        self.answers.push_back((channel, answer));
    }

    /// A challenge with an identifier, to be sent on a channel.
    pub(crate) fn challenge(&self, channel: usize, id: u64) -> Vec<u8> {
        let kind = PathDatagramKind::Challenge;
        PathDatagram { kind, id, length: 0 }.seal(&self.outgoing, channel)
    }

    /// Called when a right control share has arrived on a channel.
    pub(crate) fn handle_share(&mut self, channel: usize, now: Duration) {
        if let Some(discovery) = self.discoveries.get_mut(channel) {
            discovery.handle_activity(now);
        }
    }

    /// Called when the kernel refused a datagram on a channel because it is too long for the
    /// device.
    pub(crate) fn handle_refusal(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        let is_probe =
            bytes.first().copied().and_then(PathDatagramKind::of) == Some(PathDatagramKind::Probe);
        if let Some(discovery) = self.discoveries.get_mut(channel).filter(|_| is_probe) {
            discovery.handle_refusal(bytes.len(), now);
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        let (channel, datagram) = self.answers.pop_front().or_else(|| {
            let mut discoveries = self.discoveries.iter_mut().enumerate();
            discoveries.find_map(|(channel, discovery)| {
                let MtuProbe { id, length } = discovery.poll_transmit(now)?;
                Some((channel, PathDatagram { kind: PathDatagramKind::Probe, id, length }))
            })
        })?;
        Some((channel, datagram.seal(&self.outgoing, channel)))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.discoveries.iter().filter_map(PathMtuDiscovery::poll_timeout).min()
    }

    /// The maximum length of a datagram, when it has changed: that of the shortest known MTU, or
    /// what every path carries, as long as the MTU of a channel that is up is unknown. Other
    /// channels do not affect it.
    pub(crate) fn poll_limit(&mut self) -> Option<DatagramLimit> {
        let lens = self.discoveries.iter().enumerate().filter_map(|(channel, discovery)| {
            let unknown = self.up.contains(channel).then(|| discovery.min_datagram_len());
            discovery.max_datagram_len().or(unknown)
        });
        let len = lens.min()?;
        let is_measured = self.discoveries.iter().enumerate().all(|(channel, discovery)| {
            !self.up.contains(channel)
                || discovery.mtu().is_some() && !discovery.is_searching_black_hole()
        });
        let limit = DatagramLimit { len, is_measured };
        (self.limit.replace(limit) != Some(limit)).then_some(limit)
    }

    /// What is known of each channel's path.
    pub(crate) fn mtus(&self) -> impl Iterator<Item = PathMtu> {
        self.discoveries.iter().map(|discovery| PathMtu {
            mtu: discovery.mtu(),
            black_hole: discovery.black_hole(),
            is_searching: discovery.is_searching_black_hole(),
            suspected_since: discovery.suspected_since(),
        })
    }

    /// The next change of a channel's MTU. Call it until it returns `None`.
    pub(crate) fn poll_change(&mut self) -> Option<PathMtuChange> {
        let is_known = |mtu: &PathMtu| (mtu.mtu, mtu.is_searching);
        let mut pairs = self.mtus().zip(&self.reported).enumerate();
        let (channel, now, former) = pairs.find_map(|(channel, (now, former))| {
            (is_known(&now) != is_known(former)).then_some((channel, now, *former))
        })?;
        drop(pairs);
        self.reported[channel] = now;
        Some(PathMtuChange { channel, former, now })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: [u16; 3] = [28, 28, 48];

    fn pair() -> (PathProber, PathProber) {
        let (there, back) = (TokenKey::new(&[1; 16]), TokenKey::new(&[2; 16]));
        let mut one = PathProber::new(there.clone(), back.clone(), &HEADERS);
        for channel in 0..3 {
            one.handle_share(channel, Duration::ZERO);
        }
        (one, PathProber::new(back, there, &HEADERS))
    }

    /// Lets one end search, over channels with these MTUs, until it is done.
    fn run(one: &mut PathProber, other: &mut PathProber, carried: [usize; 3]) -> Vec<usize> {
        let (mut now, mut lengths) = (Duration::ZERO, Vec::new());
        loop {
            while let Some((channel, probe)) = one.poll_transmit(now) {
                if probe.len() + usize::from(HEADERS[channel]) <= carried[channel] {
                    other.handle_datagram(channel, &probe, now).unwrap();
                    let answer = other.poll_transmit(now).unwrap();
                    one.handle_datagram(answer.0, &answer.1, now).unwrap();
                }
                lengths.extend(one.poll_limit().map(|limit| limit.len));
            }
            match one.poll_timeout() {
                Some(at) if at < Duration::from_secs(60) => now = at,
                _ => return lengths,
            }
        }
    }

    #[test]
    fn the_datagram_length_follows_the_smallest_mtu() {
        let (mut one, mut other) = pair();
        let lengths = run(&mut one, &mut other, [1500, 1460, 1500]);
        assert_eq!(*lengths.last().unwrap(), 1432);
        let (mut one, mut other) = pair();
        assert_eq!(*run(&mut one, &mut other, [1500; 3]).last().unwrap(), 1452);
    }

    #[test]
    fn a_dead_channel_does_not_affect_the_mtu_of_others() {
        let (mut one, mut other) = pair();
        let lengths = run(&mut one, &mut other, [1460, 0, 1500]);
        assert_eq!(*lengths.last().unwrap(), 1432);
        assert!(lengths.iter().all(|max_datagram_len| *max_datagram_len >= 1432), "{lengths:?}");
        let (mut one, mut other) = pair();
        assert!(run(&mut one, &mut other, [0; 3]).is_empty());
    }

    #[test]
    fn an_end_that_does_not_search_answers_probes() {
        let (mut one, mut other) = pair();
        assert_eq!(*run(&mut one, &mut other, [1400; 3]).last().unwrap(), 1352);
        assert_eq!((other.poll_transmit(Duration::ZERO), other.poll_limit()), (None, None));
    }

    #[test]
    fn datagrams_with_wrong_tokens_are_ignored() {
        let (mut one, mut other) = pair();
        let (channel, probe) = one.poll_transmit(Duration::ZERO).unwrap();
        let elsewhere = (channel + 1) % 3;
        let back = one.handle_datagram(channel, &probe, Duration::ZERO);
        let there = other.handle_datagram(elsewhere, &probe, Duration::ZERO);
        assert_eq!((back, there), (Err(PathDatagramError::Token), Err(PathDatagramError::Token)));
        assert!(other.answers.is_empty());
        let answer = PathDatagram { kind: PathDatagramKind::ProbeAnswer, id: 0, length: 1472 };
        let made_up = answer.seal(&TokenKey::new(&[3; 16]), channel);
        assert_eq!(
            one.handle_datagram(channel, &made_up, Duration::ZERO),
            Err(PathDatagramError::Token)
        );
        assert_eq!(one.poll_limit(), None);
    }

    #[test]
    fn only_probe_answers_count_as_answers_to_probes() {
        let (mut one, other) = pair();
        let (channel, probe) = one.poll_transmit(Duration::ZERO).unwrap();
        let probe = PathDatagram::open(&probe, &other.incoming, channel).unwrap();
        for kind in [
            PathDatagramKind::ChallengeAnswer,
            PathDatagramKind::Challenge,
            PathDatagramKind::Probe,
        ] {
            let length = if kind == PathDatagramKind::Probe { probe.length } else { 0 };
            let bytes = PathDatagram { kind, length, ..probe }.seal(&other.outgoing, channel);
            one.handle_datagram(channel, &bytes, Duration::ZERO).unwrap();
            assert_eq!(one.discoveries[channel].mtu(), None);
        }
        let answer = probe.answer().unwrap().seal(&other.outgoing, channel);
        one.handle_datagram(channel, &answer, Duration::ZERO).unwrap();
        assert_eq!(one.discoveries[channel].mtu(), Some(1500));
    }

    #[test]
    fn a_refusal_of_anything_else_lowers_nothing() {
        let (mut one, mut other) = pair();
        let probe = one.poll_transmit(Duration::ZERO).unwrap().1;
        let cookie = [&[0x91][..], &probe[1..]].concat();
        for bytes in [&cookie, &probe[..100]] {
            for channel in 0..4 {
                one.handle_refusal(channel, bytes, Duration::ZERO);
            }
        }
        let lengths = run(&mut one, &mut other, [1500; 3]);
        assert!(lengths.iter().all(|max_datagram_len| *max_datagram_len >= 1452), "{lengths:?}");
    }

    #[test]
    fn a_challenge_is_answered_with_its_identifier() {
        let (mut one, mut other) = pair();
        let challenge = one.challenge(1, 0x0102_0304);
        assert_eq!(other.handle_datagram(1, &challenge, Duration::ZERO), Ok(None));
        let (channel, answer) = other.poll_transmit(Duration::ZERO).unwrap();
        assert_eq!((channel, answer.len()), (1, challenge.len()));
        let answered = one.handle_datagram(1, &answer, Duration::ZERO);
        assert_eq!(answered, Ok(Some(0x0102_0304)));
        assert_eq!(one.handle_datagram(0, &answer, Duration::ZERO), Err(PathDatagramError::Token));
        assert_eq!(
            one.handle_datagram(1, &challenge, Duration::ZERO),
            Err(PathDatagramError::Token)
        );
    }

    #[test]
    fn answers_are_bounded() {
        let (mut one, mut other) = pair();
        let probe = one.poll_transmit(Duration::ZERO).unwrap().1;
        for _ in 0..100 {
            other.handle_datagram(0, &probe, Duration::ZERO).unwrap();
        }
        assert_eq!(other.answers.len(), MAX_ANSWERS);
        other.handle_datagram(3, &probe, Duration::ZERO).unwrap();
    }

    #[test]
    fn many_probes_on_a_channel_do_not_suppress_other_answers() {
        let (mut one, mut other) = pair();
        let probe = |id| PathDatagram { kind: PathDatagramKind::Probe, id, length: 100 };
        let sealed: Vec<_> = (0..100).map(|id| probe(id).seal(&one.outgoing, 0)).collect();
        let challenges = [0, 1].map(|channel| (channel, one.challenge(channel, 7)));
        let mut send = |channel, bytes: &[u8]| {
            other.handle_datagram(channel, bytes, Duration::ZERO).unwrap();
        };
        for probe in &sealed {
            send(0, probe);
        }
        for (channel, challenge) in &challenges {
            send(*channel, challenge);
        }
        for probe in &sealed {
            send(0, probe);
        }
        send(
            2,
            &PathDatagram { kind: PathDatagramKind::Probe, id: 1, length: 50 }
                .seal(&one.outgoing, 2),
        );
        let mut answered = [0; 3];
        let mut challenged = [false; 3];
        while let Some((channel, answer)) = other.poll_transmit(Duration::ZERO) {
            answered[channel] += 1;
            let id = one.handle_datagram(channel, &answer, Duration::ZERO).unwrap();
            challenged[channel] |= id == Some(7);
        }
        assert_eq!((challenged, answered[2]), ([true, true, false], 1));
        assert_eq!(answered[0], MAX_ANSWERS + 1, "{answered:?}");
    }
}
