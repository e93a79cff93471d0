//! Path datagrams of all channels: MTU discovery, challenges, and answers to the peer.

use std::collections::VecDeque;
use std::time::Duration;

use crate::wire::path::{PathDatagram, PathError, PathKind};
use crate::wire::tokens::TokenKey;
use udp::{PathMtuDiscovery, Probe};

/// The maximum number of answers of each kind that wait to be sent on a channel. The oldest are
/// evicted. So replayed probes do not suppress answers on other channels, or answers to challenges.
const MAX_ANSWERS: usize = 8;

/// The path datagrams of all channels.
pub(crate) struct PathManager {
    discoveries: Vec<PathMtuDiscovery>,
    /// The token keys of both directions.
    outgoing: TokenKey,
    incoming: TokenKey,
    answers: VecDeque<(usize, PathDatagram)>,
    /// The last result of [`Self::poll_max_datagram_len`].
    max_datagram_len: Option<usize>,
}

impl PathManager {
    /// `headers` is the length of the headers of IP and UDP on each channel.
    pub(crate) fn new(outgoing: TokenKey, incoming: TokenKey, headers: &[u16]) -> Self {
        let discoveries = headers.iter().map(|headers| PathMtuDiscovery::new(*headers)).collect();
        Self { discoveries, outgoing, incoming, answers: VecDeque::new(), max_datagram_len: None }
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
    ) -> Result<Option<u64>, PathError> {
        let Some(discovery) = self.discoveries.get_mut(channel) else { return Ok(None) };
        let datagram = PathDatagram::open(bytes, &self.incoming, channel)?;
        match datagram.answer() {
            Some(answer) => self.queue(channel, answer),
            None if datagram.kind == PathKind::ChallengeAnswer => return Ok(Some(datagram.id)),
            None => {
                discovery.handle_answer(Probe { id: datagram.id, length: datagram.length }, now);
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
        let kind = PathKind::Challenge;
        PathDatagram { kind, id, length: 0 }.seal(&self.outgoing, channel)
    }

    /// A right control share has arrived on a channel.
    pub(crate) fn handle_share(&mut self, channel: usize, now: Duration) {
        if let Some(discovery) = self.discoveries.get_mut(channel) {
            discovery.handle_activity(now);
        }
    }

    /// The kernel refused a datagram on a channel, because it is too long for the device.
    pub(crate) fn handle_refusal(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        let is_probe = bytes.first().copied().and_then(PathKind::of) == Some(PathKind::Probe);
        if let Some(discovery) = self.discoveries.get_mut(channel).filter(|_| is_probe) {
            discovery.handle_refusal(bytes.len(), now);
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        let (channel, datagram) = self.answers.pop_front().or_else(|| {
            let mut discoveries = self.discoveries.iter_mut().enumerate();
            discoveries.find_map(|(channel, discovery)| {
                let Probe { id, length } = discovery.poll_transmit(now)?;
                Some((channel, PathDatagram { kind: PathKind::Probe, id, length }))
            })
        })?;
        Some((channel, datagram.seal(&self.outgoing, channel)))
    }

    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.discoveries.iter().filter_map(PathMtuDiscovery::poll_timeout).min()
    }

    /// The maximum length of a datagram on all channels with a known MTU, as UDP payload, when it
    /// has changed. A channel that does not work does not affect the others.
    pub(crate) fn poll_max_datagram_len(&mut self) -> Option<usize> {
        let max_datagram_len =
            self.discoveries.iter().filter_map(PathMtuDiscovery::max_datagram_len).min()?;
        (self.max_datagram_len.replace(max_datagram_len) != Some(max_datagram_len))
            .then_some(max_datagram_len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADERS: [u16; 3] = [28, 28, 48];

    fn pair() -> (PathManager, PathManager) {
        let (there, back) = (TokenKey::new(&[1; 16]), TokenKey::new(&[2; 16]));
        let mut one = PathManager::new(there.clone(), back.clone(), &HEADERS);
        for channel in 0..3 {
            one.handle_share(channel, Duration::ZERO);
        }
        (one, PathManager::new(back, there, &HEADERS))
    }

    /// Lets one end search, over channels with these MTUs, until it is done.
    fn run(one: &mut PathManager, other: &mut PathManager, carried: [usize; 3]) -> Vec<usize> {
        let (mut now, mut lengths) = (Duration::ZERO, Vec::new());
        loop {
            while let Some((channel, probe)) = one.poll_transmit(now) {
                if probe.len() + usize::from(HEADERS[channel]) <= carried[channel] {
                    other.handle_datagram(channel, &probe, now).unwrap();
                    let answer = other.poll_transmit(now).unwrap();
                    one.handle_datagram(answer.0, &answer.1, now).unwrap();
                }
                lengths.extend(one.poll_max_datagram_len());
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
        assert_eq!(
            (other.poll_transmit(Duration::ZERO), other.poll_max_datagram_len()),
            (None, None)
        );
    }

    #[test]
    fn datagrams_with_wrong_tokens_are_ignored() {
        let (mut one, mut other) = pair();
        let (channel, probe) = one.poll_transmit(Duration::ZERO).unwrap();
        let elsewhere = (channel + 1) % 3;
        let back = one.handle_datagram(channel, &probe, Duration::ZERO);
        let there = other.handle_datagram(elsewhere, &probe, Duration::ZERO);
        assert_eq!((back, there), (Err(PathError::Token), Err(PathError::Token)));
        assert!(other.answers.is_empty());
        let answer = PathDatagram { kind: PathKind::ProbeAnswer, id: 0, length: 1472 };
        let made_up = answer.seal(&TokenKey::new(&[3; 16]), channel);
        assert_eq!(one.handle_datagram(channel, &made_up, Duration::ZERO), Err(PathError::Token));
        assert_eq!(one.poll_max_datagram_len(), None);
    }

    #[test]
    fn only_probe_answers_count_as_answers_to_probes() {
        let (mut one, other) = pair();
        let (channel, probe) = one.poll_transmit(Duration::ZERO).unwrap();
        let probe = PathDatagram::open(&probe, &other.incoming, channel).unwrap();
        for kind in [PathKind::ChallengeAnswer, PathKind::Challenge, PathKind::Probe] {
            let length = if kind == PathKind::Probe { probe.length } else { 0 };
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
        assert_eq!(one.handle_datagram(0, &answer, Duration::ZERO), Err(PathError::Token));
        assert_eq!(one.handle_datagram(1, &challenge, Duration::ZERO), Err(PathError::Token));
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
        let probe = |id| PathDatagram { kind: PathKind::Probe, id, length: 100 };
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
        send(2, &PathDatagram { kind: PathKind::Probe, id: 1, length: 50 }.seal(&one.outgoing, 2));
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
