//! Whole logs under a simulated network.
