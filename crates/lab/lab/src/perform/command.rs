//! A command that a trial runs.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// A command that a trial runs on a host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProgramCommand {
    /// The program and its arguments.
    pub(crate) run: Vec<String>,
    /// Variables of its environment, beside those that all programs have.
    pub(crate) environment: BTreeMap<String, String>,
    /// Its working directory; `None` is that of the process that starts it.
    pub(crate) directory: Option<PathBuf>,
}

impl ProgramCommand {
    /// A program and its arguments.
    pub(crate) fn new(run: Vec<String>) -> Self {
        Self { run, ..Self::default() }
    }

    /// The same with a variable of the environment.
    pub(crate) fn with_variable(mut self, name: &str, value: String) -> Self {
        self.environment.insert(name.to_owned(), value);
        self
    }
}
