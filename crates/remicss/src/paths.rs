//! How long the packets of all channels may be: a search on each, and answers to the peer's.

use std::time::Duration;

use sharing::{Generator, RandomError};

use crate::keys::Token;
use crate::probe::{Search, answer};

/// How many answers wait to be sent. Further probes are lost, as datagrams are.
const MAX_ANSWERS: usize = 64;

/// The searches on all channels.
pub(crate) struct Paths {
    /// None without random bytes. Then datagrams stay as long as they are.
    searches: Vec<Search>,
    /// The tokens of what goes out and of what comes in.
    outgoing: Vec<Token>,
    incoming: Vec<Token>,
    answers: Vec<(usize, Vec<u8>)>,
    /// What was told last.
    room: Option<usize>,
}

impl Paths {
    /// Searches on channels with tokens for what goes out and for what comes in, and these headers of
    /// IP and UDP.
    pub(crate) fn new(
        outgoing: Vec<Token>,
        incoming: Vec<Token>,
        headers: &[u16],
        generator: &mut Generator,
    ) -> Self {
        let channels = outgoing.iter().zip(headers);
        let begin = |(token, headers): (&Token, &u16)| {
            Ok(Search::new(*token, generator.array()?, *headers))
        };
        let searches = channels.map(begin).collect::<Result<_, RandomError>>().unwrap_or_default();
        Self { searches, outgoing, incoming, answers: Vec::new(), room: None }
    }

    /// A probe or an answer came on a channel.
    pub(crate) fn handle_datagram(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        let tokens = (self.incoming.get(channel), self.outgoing.get(channel));
        let (Some(token), Some(reply)) = tokens else { return };
        if let Some(answer) = answer(bytes, *token, *reply) {
            if self.answers.len() < MAX_ANSWERS {
                self.answers.push((channel, answer));
            }
        } else if let Some(search) = self.searches.get_mut(channel) {
            search.handle_answer(bytes, *token, now);
        }
    }

    /// A share came on a channel.
    pub(crate) fn handle_share(&mut self, channel: usize, now: Duration) {
        if let Some(search) = self.searches.get_mut(channel) {
            search.handle_share(now);
        }
    }

    /// The kernel refused a datagram on a channel, as it is too long for the device.
    pub(crate) fn handle_refusal(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        if let Some(search) = self.searches.get_mut(channel) {
            search.handle_refusal(bytes, now);
        }
    }

    pub(crate) fn poll_transmit(&mut self, now: Duration) -> Option<(usize, Vec<u8>)> {
        self.answers.pop().or_else(|| {
            let mut searches = self.searches.iter_mut().enumerate();
            searches.find_map(|(channel, search)| Some((channel, search.poll_transmit(now)?)))
        })
    }

    pub(crate) fn poll_timeout(&self) -> Option<Duration> {
        self.searches.iter().filter_map(Search::poll_timeout).min()
    }

    /// The longest datagram of all channels of which it is known, as UDP's payload, whenever it is
    /// another. A channel that is off does not keep it from the others.
    pub(crate) fn poll_room(&mut self) -> Option<usize> {
        let room = self.searches.iter().filter_map(Search::room).min()?;
        (self.room.replace(room) != Some(room)).then_some(room)
    }
}

#[cfg(test)]
mod tests {
    use sharing::Rng;

    use super::*;

    const HEADERS: [u16; 3] = [28, 28, 48];

    fn token(number: u8) -> Token {
        Token::new([number; 3])
    }

    fn generator() -> Generator {
        Rng::Os.generator().unwrap()
    }

    fn pair() -> (Paths, Paths) {
        let (there, back): (Vec<_>, Vec<_>) = (0..3).map(|i| (token(i), token(8 + i))).unzip();
        let mut one = Paths::new(there.clone(), back.clone(), &HEADERS, &mut generator());
        for channel in 0..3 {
            one.handle_share(channel, Duration::ZERO);
        }
        (one, Paths::new(back, there, &HEADERS, &mut generator()))
    }

    /// Has one end search, over channels that carry packets of so many bytes, until it rests.
    fn run(one: &mut Paths, other: &mut Paths, carried: [usize; 3]) -> Vec<usize> {
        let (mut now, mut rooms) = (Duration::ZERO, Vec::new());
        loop {
            while let Some((channel, probe)) = one.poll_transmit(now) {
                if probe.len() + usize::from(HEADERS[channel]) <= carried[channel] {
                    other.handle_datagram(channel, &probe, now);
                    let answer = other.answers.pop().unwrap();
                    one.handle_datagram(answer.0, &answer.1, now);
                }
                rooms.extend(one.poll_room());
            }
            match one.poll_timeout() {
                Some(at) if at < Duration::from_secs(60) => now = at,
                _ => return rooms,
            }
        }
    }

    #[test]
    fn the_room_is_that_of_the_channel_with_the_least() {
        let (mut one, mut other) = pair();
        let rooms = run(&mut one, &mut other, [1500, 1460, 1500]);
        assert_eq!(*rooms.last().unwrap(), 1432);
        let (mut one, mut other) = pair();
        assert_eq!(*run(&mut one, &mut other, [1500; 3]).last().unwrap(), 1452);
    }

    #[test]
    fn a_channel_that_is_off_lowers_nothing_and_holds_up_nothing() {
        let (mut one, mut other) = pair();
        let rooms = run(&mut one, &mut other, [1460, 0, 1500]);
        assert_eq!(*rooms.last().unwrap(), 1432);
        assert!(rooms.iter().all(|room| *room >= 1432), "{rooms:?}");
        let (mut one, mut other) = pair();
        assert!(run(&mut one, &mut other, [0; 3]).is_empty());
    }

    #[test]
    fn who_does_not_search_answers() {
        let (mut one, mut other) = pair();
        other.searches.clear();
        assert_eq!(*run(&mut one, &mut other, [1400; 3]).last().unwrap(), 1352);
        assert_eq!((other.poll_transmit(Duration::ZERO), other.poll_room()), (None, None));
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
        let rooms = run(&mut one, &mut other, [1500; 3]);
        assert!(rooms.iter().all(|room| *room >= 1452), "{rooms:?}");
    }

    #[test]
    fn answers_are_bounded() {
        let (mut one, mut other) = pair();
        let probe = one.poll_transmit(Duration::ZERO).unwrap().1;
        for _ in 0..100 {
            other.handle_datagram(0, &probe, Duration::ZERO);
        }
        assert_eq!(other.answers.len(), MAX_ANSWERS);
        other.handle_datagram(3, &probe, Duration::ZERO);
    }
}
