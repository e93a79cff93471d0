//! How long the packets of all channels may be: a search on each, and answers to the peer's.

use std::time::Duration;

use sharing::{Generator, RandomError};
use thiserror::Error;

use crate::keys::Token;
use crate::probe::{Search, SearchError, answer};

/// How many answers wait to be sent. Further probes are lost, as datagrams are.
const MAX_ANSWERS: usize = 64;

/// There can be no search.
#[derive(Clone, Copy, Debug, Error)]
pub enum PathsError {
    /// A device or a channel is out of the ordinary.
    #[error(transparent)]
    Search(#[from] SearchError),
    /// There are no random bytes.
    #[error(transparent)]
    Random(#[from] RandomError),
}

/// The searches on all channels.
pub(crate) struct Paths {
    searches: Vec<Search>,
    headers: Vec<u16>,
    /// The tokens of what goes out and of what comes in.
    outgoing: Vec<Token>,
    incoming: Vec<Token>,
    answers: Vec<(usize, Vec<u8>)>,
    /// What was told last.
    room: Option<usize>,
}

impl Paths {
    pub(crate) fn new(
        outgoing: Vec<Token>,
        incoming: Vec<Token>,
        headers: &[u16],
        device_mtus: &[u16],
        generator: &mut Generator,
    ) -> Result<Self, PathsError> {
        let mut searches = Vec::with_capacity(outgoing.len());
        for ((token, headers), mtu) in outgoing.iter().zip(headers).zip(device_mtus) {
            searches.push(Search::new(*token, generator.array()?, *mtu, *headers)?);
        }
        let (answers, room) = (Vec::new(), None);
        Ok(Self { searches, headers: headers.to_vec(), outgoing, incoming, answers, room })
    }

    /// A probe or an answer came on a channel.
    pub(crate) fn handle_datagram(&mut self, channel: usize, bytes: &[u8], now: Duration) {
        let Some(search) = self.searches.get_mut(channel) else { return };
        let (token, reply) = (self.incoming[channel], self.outgoing[channel]);
        match answer(bytes, token, reply) {
            Some(_) if self.answers.len() >= MAX_ANSWERS => {}
            Some(answer) => self.answers.push((channel, answer)),
            None => search.handle_answer(bytes, token, now),
        }
    }

    /// The kernel refused the datagram that was to be sent last on a channel.
    pub(crate) fn handle_refusal(&mut self, channel: usize, now: Duration) {
        if let Some(search) = self.searches.get_mut(channel) {
            search.handle_refusal(now);
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

    /// The longest datagram of all channels, as UDP's payload, once all are known, and whenever it
    /// is another.
    pub(crate) fn poll_room(&mut self) -> Option<usize> {
        let rooms = self.searches.iter().zip(&self.headers);
        let rooms =
            rooms.map(|(search, headers)| search.mtu().map(|mtu| usize::from(mtu - headers)));
        let room = rooms.collect::<Option<Vec<usize>>>()?.into_iter().min()?;
        (self.room.replace(room) != Some(room)).then_some(room)
    }
}
