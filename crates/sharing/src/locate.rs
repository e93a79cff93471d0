//! Wrong shares.
