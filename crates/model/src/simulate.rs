//! A Monte-Carlo simulation of the single-symbol process (III-C).
