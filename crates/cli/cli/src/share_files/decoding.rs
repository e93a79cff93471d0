//! Joins and verifies the shares of a split, segment by segment.

use console::{CommandFailure, CommandProgress};
use sharing::file::{PROTECTED_LEN, ShareFileDecodeError, ShareFileDecoder};
use sharing::locate::ShareErrorLocationError;
use sharing::tamper;
use zeroize::Zeroizing;

use super::share::{ShareFileReader, ShareFileSet};

/// Joins all segments, and passes the bytes of each to `consume` after they are verified. The
/// memory used does not depend on their number.
///
/// # Errors
/// If too few shares are right, or `consume` fails.
pub(crate) fn decode_segments(
    shares: &mut ShareFileSet,
    progress: &CommandProgress,
    mut consume: impl FnMut(&[u8]) -> Result<(), CommandFailure>,
) -> Result<(), CommandFailure> {
    let mut decoder = ShareFileDecoder::new(shares.split);
    let mut segment = Zeroizing::new(vec![0; PROTECTED_LEN]);
    while let Some(len) = decoder.next_len() {
        let position = decoder.position();
        shares.read(len, position)?;
        let present = || shares.files.iter().filter(|file| file.is_present());
        let coordinates: Vec<u8> = present().map(ShareFileReader::x).collect();
        let parts: Vec<&[u8]> = present().map(|file| file.part(len)).collect();
        let wrong = decoder
            .decode(&coordinates, &parts, &mut segment[..len])
            .map_err(|error| explain(&error, position, shares))?;
        shares.mark_faulty(&wrong, position);

        let bytes = &segment[tamper::OVERHEAD..len];
        consume(bytes)?;
        progress.advance(bytes.len());
    }
    shares.read_end()
}

/// Explains what to do about a segment that cannot be joined.
fn explain(error: &ShareFileDecodeError, position: u64, shares: &ShareFileSet) -> CommandFailure {
    let lost = shares.losses();
    CommandFailure::Refused(match error {
        ShareFileDecodeError::Tampered(_) => format!(
            "a share was changed: from byte {position} on, the shares do not join to what was \
             split; give more shares, to find the changed one, or unchanged copies{lost}"
        ),
        ShareFileDecodeError::Locate(ShareErrorLocationError::Ambiguous { first, second }) => {
            format!(
                "two different files fit from byte {position} on: one is joined from {}, another \
                 from {}; one of them was forged, and nothing shows which; give only shares that \
                 you trust{lost}",
                shares.names_of(first),
                shares.names_of(second)
            )
        }
        ShareFileDecodeError::Locate(_) => format!(
            "too many shares were changed: from byte {position} on, no choice of them joins to \
             what was split; give more shares{lost}"
        ),
        ShareFileDecodeError::Shares(error) => {
            format!("the shares cannot be joined: {error}{lost}")
        }
    })
}
