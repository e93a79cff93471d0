//! How much placeholders may make of a file: a few lines of named values that hold each other can
//! say more than any memory holds.

use std::cell::Cell;

use toml::Value;

/// The bytes of text and the items of lists and tables that there is room for.
#[derive(Clone, Copy, Debug)]
struct Left {
    text: usize,
    items: usize,
}

/// What a trial may still hold, and all trials together.
#[derive(Debug)]
pub(super) struct Room<'a> {
    trial: Cell<Left>,
    all: &'a Together,
}

/// What all trials together may still hold.
#[derive(Debug)]
pub(super) struct Together(Cell<Left>);

/// The most that one trial holds.
const TRIAL: Left = Left { text: 1 << 20, items: 10_000 };

/// The most that all trials hold together.
const ALL: Left = Left { text: 64 << 20, items: 2_000_000 };

/// The most lists and tables within each other in what a named value sets.
pub(super) const MOST_DEPTH: usize = 16;

impl Together {
    pub(super) fn new() -> Self {
        Self(Cell::new(ALL))
    }
}

impl<'a> Room<'a> {
    /// The room for one more trial.
    pub(super) fn new(all: &'a Together) -> Self {
        Self { trial: Cell::new(TRIAL), all }
    }

    /// Takes room for so many bytes of text, or says that there is none.
    pub(super) fn text(&self, bytes: usize) -> Result<(), String> {
        self.take(Left { text: bytes, items: 0 })
    }

    /// Takes room for so many items.
    pub(super) fn items(&self, count: usize) -> Result<(), String> {
        self.take(Left { text: 0, items: count })
    }

    /// Takes room for a copy of a value.
    pub(super) fn value(&self, value: &Value) -> Result<(), String> {
        match value {
            Value::String(text) => self.text(text.len()),
            Value::Array(items) => {
                self.items(items.len())?;
                items.iter().try_for_each(|item| self.value(item))
            }
            Value::Table(table) => {
                self.items(table.len())?;
                self.text(table.keys().map(String::len).sum())?;
                table.values().try_for_each(|item| self.value(item))
            }
            _ => Ok(()),
        }
    }

    fn take(&self, what: Left) -> Result<(), String> {
        let trial = self.trial.get().without(what).ok_or_else(|| {
            format!(
                "makes the trial hold more than {} bytes of text or {} items; say less",
                TRIAL.text, TRIAL.items
            )
        })?;
        let all = self.all.0.get().without(what).ok_or_else(|| {
            format!(
                "makes all trials together hold more than {} MiB of text or {} items; try less",
                ALL.text >> 20,
                ALL.items
            )
        })?;
        self.trial.set(trial);
        self.all.0.set(all);
        Ok(())
    }
}

impl Left {
    fn without(self, taken: Self) -> Option<Self> {
        let text = self.text.checked_sub(taken.text)?;
        Some(Self { text, items: self.items.checked_sub(taken.items)? })
    }
}

/// How many lists and tables a value has within each other.
pub(super) fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Table(table) => 1 + table.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}
