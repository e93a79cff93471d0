//! Names of the rules by which values that are written differently become equal.

use clap::ValueEnum;
use psi::PsiNormalization;

/// The name of a rule.
#[derive(Clone, Copy, ValueEnum)]
pub(super) enum NormalizationRuleName {
    /// Values as they are, without the spaces around them
    Trim,
    /// In small letters
    Lower,
    /// An address of electronic mail: in small letters, without `mailto:`
    Email,
    /// A telephone number: `+` and digits only, with `+` for a leading 00
    Phone,
    /// Values as they are, with the spaces around them
    Exact,
}

impl NormalizationRuleName {
    pub(super) fn rule(self) -> PsiNormalization {
        match self {
            Self::Trim => PsiNormalization::Trim,
            Self::Lower => PsiNormalization::Lower,
            Self::Email => PsiNormalization::Email,
            Self::Phone => PsiNormalization::Phone,
            Self::Exact => PsiNormalization::Exact,
        }
    }
}
