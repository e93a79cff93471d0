//! What an eavesdropper learns of a tunnel's packets from captures of some channels: everything
//! with k channels, and nothing with fewer.
//!
//! For each set of channels that is one short of a symbol's threshold, the captured bytes are
//! compared with those of the packet, which the other captures reveal. If the tunnel keeps its
//! promise, each byte of a share, and of the result of joining too few shares, is uniform and
//! independent of the packet's byte. Their XOR is then uniform as well, which a chi-squared test
//! checks.

use std::collections::BTreeMap;
use std::io::{self, Read};

use lab::capture::PcapngReader;
use remicss::wire::datagram::{DatagramClass, SymbolKind, SymbolShareHeader};
use serde::Serialize;
use sharing::{Joiner, SharingParameters};
use tun::ip::packet_len;

/// The maximum number of symbols that are examined.
const MAX_SYMBOLS: usize = 200_000;

/// The length of a tag, if there are tags.
const TAG_LEN: usize = 8;

/// What was captured in one direction of a tunnel.
#[derive(Debug, Default)]
pub(super) struct CapturedSymbols {
    /// The shares of each symbol, by channel.
    symbols: BTreeMap<CapturedSymbolId, CapturedShares>,
    channels: usize,
}

/// The shares of a symbol, by channel.
#[derive(Debug, Default)]
struct CapturedShares(BTreeMap<usize, Vec<u8>>);

/// A symbol whose packet the captures reveal together.
struct RevealedSymbol<'a> {
    shares: &'a CapturedShares,
    /// The shared bytes: the packet, with the bytes before and after it.
    symbol: Vec<u8>,
}

/// What identifies a symbol: the fields of its headers, and its length. Of more than 2^24 symbols
/// some would have the same sequence number; fewer are examined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct CapturedSymbolId {
    threshold: u8,
    sequence: u32,
    length: usize,
}

/// What a set of channels reveals of the symbols with one threshold.
#[derive(Clone, Debug, Serialize)]
pub(super) struct EavesdropFinding {
    /// The threshold k of the symbols.
    pub(super) threshold: u8,
    /// The channels, by index.
    pub(super) channels: Vec<usize>,
    /// The number of symbols with a share on each of the channels.
    pub(super) symbols: usize,
    /// The number of symbols that were joined to packets: all of them, if there are k channels.
    pub(super) read: usize,
    /// With fewer than k channels: the deviation of the chi-squared statistic from its mean for
    /// independent bytes, in standard deviations. It is the maximum over the shares and their join.
    pub(super) correlation: Option<f64>,
}

impl CapturedSymbols {
    /// Reads the captures, one for each channel in the tunnel's order. Only datagrams to `port`,
    /// the server's, are used.
    ///
    /// # Errors
    /// If a capture cannot be read; with the index of its channel.
    pub(super) fn read<R: Read>(
        captures: impl IntoIterator<Item = R>,
        port: u16,
    ) -> Result<Self, (usize, io::Error)> {
        let mut captured = Self::default();
        for (channel, file) in captures.into_iter().enumerate() {
            let mut capture = PcapngReader::new(file);
            while let Some(datagram) = capture.next_datagram().map_err(|error| (channel, error))? {
                if datagram.to.port() == port {
                    captured.add(channel, &datagram.payload);
                }
            }
            captured.channels = channel + 1;
        }
        Ok(captured)
    }

    fn add(&mut self, channel: usize, payload: &[u8]) {
        if DatagramClass::of(payload) != Some(DatagramClass::Share) {
            return;
        }
        let Ok((header, share)) = SymbolShareHeader::parse(payload) else { return };
        if header.kind == SymbolKind::Control {
            return;
        }
        let key = CapturedSymbolId {
            threshold: header.threshold,
            sequence: header.sequence,
            length: share.len(),
        };
        if self.symbols.len() < MAX_SYMBOLS || self.symbols.contains_key(&key) {
            self.symbols.entry(key).or_default().0.entry(channel).or_insert_with(|| share.to_vec());
        }
    }

    /// What each set of k - 1 and of k channels reveals, for each captured threshold k.
    pub(super) fn findings(&self) -> Vec<EavesdropFinding> {
        let mut by_threshold: BTreeMap<u8, Vec<&CapturedShares>> = BTreeMap::new();
        for (key, shares) in &self.symbols {
            by_threshold.entry(key.threshold).or_default().push(shares);
        }
        let mut findings = Vec::new();
        for (threshold, symbols) in by_threshold {
            let k = usize::from(threshold);
            let known: Vec<RevealedSymbol<'_>> = symbols
                .into_iter()
                .filter_map(|shares| {
                    Some(RevealedSymbol { shares, symbol: packet(threshold, shares, None)? })
                })
                .collect();
            for size in [k - 1, k] {
                for channels in subsets(self.channels, size) {
                    findings.push(finding(threshold, &channels, &known));
                }
            }
        }
        findings
    }
}

/// What these channels reveal of symbols whose packets are known.
fn finding(threshold: u8, channels: &[usize], known: &[RevealedSymbol<'_>]) -> EavesdropFinding {
    let has_all = |known: &&RevealedSymbol<'_>| {
        channels.iter().all(|channel| known.shares.0.contains_key(channel))
    };
    let theirs: Vec<&RevealedSymbol<'_>> = known.iter().filter(has_all).collect();
    let reads = |known: &&&RevealedSymbol<'_>| {
        packet(threshold, known.shares, Some(channels)).is_some_and(|found| found == known.symbol)
    };
    let is_enough = channels.len() >= usize::from(threshold);
    let mut correlation = None;
    if !is_enough && !channels.is_empty() {
        let mut views: Vec<XorHistogram> = vec![XorHistogram::default(); channels.len() + 1];
        for RevealedSymbol { shares, symbol } in &theirs {
            for (view, channel) in views.iter_mut().zip(channels) {
                view.add(&shares.0[channel], symbol);
            }
            if let Some(guess) = join(channels, shares) {
                views[channels.len()].add(&guess, symbol);
            }
        }
        correlation =
            views.iter().filter_map(XorHistogram::deviation).map(f64::abs).reduce(f64::max);
    }
    EavesdropFinding {
        threshold,
        channels: channels.to_vec(),
        symbols: theirs.len(),
        read: theirs.iter().filter(reads).count(),
        correlation,
    }
}

/// Joins the shares of the channels `only`, or any k shares, to the symbol. `None` if it contains
/// no IP packet between its first byte and its tag.
fn packet(threshold: u8, shares: &CapturedShares, only: Option<&[usize]>) -> Option<Vec<u8>> {
    let k = usize::from(threshold);
    let channels: Vec<usize> = match only {
        Some(only) => only.to_vec(),
        None => shares.0.keys().copied().take(k).collect(),
    };
    if channels.len() != k {
        return None;
    }
    let symbol = join(&channels, shares)?;
    let inside = symbol.get(1..)?;
    let lengths = [inside.len(), inside.len().saturating_sub(TAG_LEN)];
    let is_packet = lengths.into_iter().any(|length| packet_len(&inside[..length]) == Some(length));
    is_packet.then_some(symbol)
}

/// Joins the shares of these channels, even if they are too few.
fn join(channels: &[usize], shares: &CapturedShares) -> Option<Vec<u8>> {
    let k = u8::try_from(channels.len()).ok()?;
    let coordinates: Vec<u8> =
        channels.iter().map(|channel| u8::try_from(channel + 1).ok()).collect::<Option<_>>()?;
    let views: Vec<&[u8]> = channels
        .iter()
        .map(|channel| shares.0.get(channel).map(Vec::as_slice))
        .collect::<Option<_>>()?;
    let mut symbol = vec![0; views.first()?.len()];
    let sharing = SharingParameters::shamir(k, u8::try_from(remicss::MAX_CHANNELS).ok()?).ok()?;
    Joiner::new(sharing).join(&coordinates, &views, &mut symbol).ok()?;
    Some(symbol)
}

/// The frequency of each value of the XOR of a captured byte and a packet's byte.
#[derive(Clone, Debug)]
struct XorHistogram([u64; 256]);

impl Default for XorHistogram {
    fn default() -> Self {
        Self([0; 256])
    }
}

impl XorHistogram {
    fn add(&mut self, captured: &[u8], symbol: &[u8]) {
        for (a, b) in captured.iter().zip(symbol) {
            self.0[usize::from(a ^ b)] += 1;
        }
    }

    /// The deviation of the chi-squared statistic from its mean, in standard deviations. `None` if
    /// there are too few bytes for it to be nearly normal.
    fn deviation(&self) -> Option<f64> {
        if self.0.iter().sum::<u64>() < 20 * 256 {
            return None;
        }
        Some((demo::chi_squared(&self.0) - 255.0) / (2.0_f64 * 255.0).sqrt())
    }
}

/// All sets of `size` channels.
fn subsets(channels: usize, size: usize) -> Vec<Vec<usize>> {
    let sets = 0..1_u32 << channels.min(16);
    let set = |bits: u32| (0..channels).filter(|channel| bits >> channel & 1 == 1).collect();
    sets.filter(|bits| bits.count_ones() as usize == size).map(set).collect()
}

#[cfg(test)]
mod tests {
    use random::RandomGenerator;
    use sharing::Splitter;

    use super::*;

    /// Symbols with k = 2 over three channels, each with a packet of zeros. `first` makes the
    /// shares of the first channel from the symbol and the true share.
    fn captured(first: impl Fn(&[u8], Vec<u8>) -> Vec<u8>) -> CapturedSymbols {
        let mut captured = CapturedSymbols { channels: 3, ..CapturedSymbols::default() };
        let mut generator = RandomGenerator::seeded().unwrap();
        let splitter = Splitter::for_coordinates(2, &[1, 2, 3]).unwrap();
        for number in 0..400_u32 {
            let mut symbol = vec![0; 1 + 100 + TAG_LEN];
            (symbol[1], symbol[4]) = (0x45, 100);
            let mut shares = vec![vec![0; symbol.len()]; 3];
            let mut views: Vec<&mut [u8]> = shares.iter_mut().map(Vec::as_mut_slice).collect();
            splitter.split(&symbol, &mut views, &mut generator).unwrap();
            shares[0] = first(&symbol, std::mem::take(&mut shares[0]));
            for (channel, share) in shares.into_iter().enumerate() {
                let [.., high, low] = number.to_be_bytes();
                // Kind and threshold, the sequence number, and a token that has no effect here.
                captured.add(channel, &[&[1, 0, high, low][..], &[0; 8], &share].concat());
            }
        }
        captured
    }

    #[test]
    fn one_channel_reveals_nothing_and_two_reveal_everything() {
        let findings = captured(|_, share| share).findings();
        assert_eq!(findings.len(), 6);
        for finding in findings {
            let all = if finding.channels.len() == 2 { 400 } else { 0 };
            assert_eq!((finding.symbols, finding.read), (400, all), "{finding:?}");
            // Five deviations occur once in millions of cases.
            assert!(finding.correlation.is_none_or(|deviations| deviations < 5.0), "{finding:?}");
        }
    }

    #[test]
    fn a_share_that_leaks_is_detected() {
        // Every eighth byte of the first channel's share is the packet's own.
        let leaky = |symbol: &[u8], mut share: Vec<u8>| {
            for place in (0..share.len()).step_by(8) {
                share[place] = symbol[place];
            }
            share
        };
        let mut captured = captured(leaky);
        // The other two channels reveal the packets.
        for shares in captured.symbols.values_mut() {
            let leak = shares.0.remove(&0).unwrap();
            shares.0.insert(3, leak);
        }
        captured.channels = 4;
        let findings = captured.findings();
        let leak = findings.iter().find(|finding| finding.channels == [3]).unwrap();
        assert!(leak.correlation.unwrap() > 50.0, "{leak:?}");
    }
}
