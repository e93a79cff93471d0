//! The sending side: what a receiver gets, and when.

#![expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers are small"
)]

mod end;
mod rates;
mod steps;
mod symbols;
