//! A copy of a configuration, in which one mistake after another is put right, so that the next shows.
//!
//! Whoever reads a configuration stops at the first mistake. So what it names is noted, taken out of the
//! copy or replaced by something that cannot be wrong, and the copy is read again.

use std::net::Ipv4Addr;

use toml::{Table, Value};

use super::Kind;
use super::finding::{Finding, Level};
use super::keys::{advice, all};
use super::kind::{Clue, Refusal};
use super::mistake::{Mistake, parted};
use super::places::{Path, Places, Step, find};

/// How many mistakes are looked for.
const ROUNDS: usize = 50;

/// The most channels that a configuration can have.
const MOST: usize = micss::MAX_CHANNELS as usize;

/// The copy, and what was found so far.
pub(crate) struct Repair {
    kind: Kind,
    document: Value,
    /// Where things are in the text that the person has written.
    places: Places,
    /// Keys that never reached whoever reads the copy.
    lost: Vec<String>,
    /// What was taken out of the copy.
    removed: Vec<Path>,
    /// What was put into the copy. What is said of that is not the person's mistake.
    supplied: Vec<Path>,
    found: Vec<Mistake>,
}

/// A change that may put right what nobody knows the place of.
struct Remedy {
    place: Option<Path>,
    /// The document with which it is tried.
    trial: Value,
    /// The document to go on with.
    repaired: Value,
}

/// What a remedy does, the best first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Effect {
    /// What was refused no longer is.
    Cures,
    /// Something else is refused, which may be what came of it.
    Shifts,
    /// Nothing, or harm.
    Fails,
}

impl Repair {
    /// A copy of a text. Nothing if it is not TOML.
    pub(crate) fn new(kind: Kind, text: &str, lost: Vec<String>) -> Option<Self> {
        let document = Value::Table(text.parse().ok()?);
        let places = Places::of(text);
        let (removed, supplied, found) = (Vec::new(), Vec::new(), Vec::new());
        Some(Self { kind, document, places, lost, removed, supplied, found })
    }

    /// Puts right what can be, and returns what was wrong.
    pub(crate) fn run(mut self) -> Vec<Mistake> {
        for _ in 0..ROUNDS {
            let Some(written) = written(&self.document) else { break };
            let Some(refusal) = self.kind.refusal(&written) else { break };
            if !self.put_right(&refusal, &written) {
                break;
            }
        }
        self.found
    }

    /// Notes what is refused and changes the copy. False if that is beyond it.
    fn put_right(&mut self, refusal: &Refusal, written: &str) -> bool {
        let message = &refusal.message;
        let place = match &refusal.clue {
            Clue::Whole => None,
            Clue::Text(text) => {
                find(&self.document, |_, value| value.as_str() == Some(text)).into_iter().next()
            }
            Clue::Key(key) => self.named(key, message),
            Clue::Span(span) => {
                let places = Places::of(written);
                let place = places.at(span);
                if let Some(name) = named(message, "missing field") {
                    return self.supply(&place.cloned().unwrap_or_default(), name);
                }
                let Some(place) = place else { return self.give_up(message) };
                if named(message, "unknown field").is_some() {
                    return self.rename(place);
                }
                Some(self.narrowed(place, message))
            }
        };
        let Some(place) = place else { return self.try_remedies(refusal) };
        if !self.is_own(&place) {
            let (what, fix) = parted(message);
            self.note(Some(&place), &what, fix);
        }
        self.replace(place)
    }

    /// The key of this name whose value is in the message, or the first of them. Of those with a list, the
    /// last that has something in it that the message names: it is there a second time.
    fn named(&self, key: &str, message: &str) -> Option<Path> {
        let is_key = |path: &Path| matches!(path.last(), Some(Step::Key(name)) if name == key);
        let all = find(&self.document, |path, _| is_key(path));
        let is_named = |path: &&Path| {
            let value = path.of(&self.document).map(shown).unwrap_or_default();
            message.starts_with(&format!("{key} = {value}:"))
        };
        let has_named = |path: &&Path| {
            let list = path.of(&self.document).and_then(Value::as_array);
            let mut texts = list.into_iter().flatten().filter_map(Value::as_str);
            texts.any(|text| message.contains(&format!(" {text} ")))
        };
        let found = all.iter().find(is_named).or_else(|| all.iter().rev().find(has_named));
        found.or(all.first()).cloned()
    }

    /// The element of a list that a message begins with, or else the list.
    fn narrowed(&self, place: &Path, message: &str) -> Path {
        let list = place.of(&self.document).and_then(Value::as_array);
        let is_named = |element: &Value| {
            let text = element.as_str().filter(|text| !text.is_empty());
            text.is_some_and(|text| {
                let beginnings = [format!("{text} "), format!("\"{text}\"")];
                beginnings.iter().any(|beginning| message.starts_with(beginning))
            })
        };
        let index = list.and_then(|list| list.iter().position(is_named));
        index.map_or_else(|| place.clone(), |index| place.index(index))
    }

    /// Adds a key that is missing. It is no mistake if it was taken out of the copy.
    fn supply(&mut self, table: &Path, name: &str) -> bool {
        let place = table.key(name);
        if !self.was_there(&place) && !self.supplied.iter().any(|own| place.is_within(own)) {
            let key = all(self.kind).known(&place.table(), name);
            let fix = key.map(|key| format!("add {}", key.written()));
            self.note(Some(table), &format!("`{name}` is missing"), fix);
        }
        let Some(value) = self.stand_in(&place) else { return false };
        self.put(place, value)
    }

    /// Corrects a key that is misspelt, and takes any other out that is unknown.
    fn rename(&mut self, place: &Path) -> bool {
        let name = place.name().to_owned();
        let advice = advice(self.kind, &place.table(), &name);
        self.note(Some(place), &format!("unknown key `{name}`"), Some(advice));
        let Some(table) = place.parent().and_then(|table| table.of_mut(&mut self.document)) else {
            return false;
        };
        let Some(table) = table.as_table_mut() else { return false };
        let value = table.remove(&name);
        let keys = all(self.kind);
        let meant = match keys.known_anywhere(&name) {
            Some(_) => None,
            None => keys.nearest(&place.table(), &name).map(|key| key.name),
        };
        let meant = meant.filter(|meant| !table.contains_key(*meant));
        if let (Some(meant), Some(value)) = (meant, value) {
            table.insert(meant.to_owned(), value);
            self.places.rename(place, meant);
        }
        true
    }

    /// Takes out what is wrong, or puts something right in its place where a list has it.
    fn replace(&mut self, mut place: Path) -> bool {
        // If it was changed before, it is what is around it that cannot be.
        while self.removed.contains(&place) || self.supplied.contains(&place) {
            match place.parent() {
                Some(around) => place = around,
                None => return false,
            }
        }
        match place.last() {
            Some(Step::Index(_)) => {
                let is_table = place.of(&self.document).is_some_and(Value::is_table);
                let value = if is_table { Some(self.spare(&place)) } else { self.stand_in(&place) };
                match value {
                    Some(value) => self.put(place, value),
                    None => place.parent().is_some_and(|list| self.replace(list)),
                }
            }
            Some(Step::Key(name)) => {
                // A text goes with all others, but for an address that is of another family.
                let is_family = ["source", "client"].contains(&name.as_str());
                let text = self.stand_in(&place).filter(|value| value.is_str() && !is_family);
                if let Some(text) = text {
                    return self.put(place, text);
                }
                let table = place.parent().and_then(|table| table.of_mut(&mut self.document));
                let removed =
                    table.and_then(Value::as_table_mut).and_then(|table| table.remove(name));
                self.removed.push(place);
                removed.is_some()
            }
            None => false,
        }
    }

    /// Puts a value into the copy.
    fn put(&mut self, place: Path, value: Value) -> bool {
        let is_put = put(&mut self.document, &place, value);
        self.supplied.push(place);
        is_put
    }

    /// A value that is not refused there, if one is known.
    fn stand_in(&self, place: &Path) -> Option<Value> {
        let name = place.name();
        let example = all(self.kind).known(&place.table(), name)?.example;
        let mut value = format!("x = {example}").parse::<Table>().ok()?.remove("x")?;
        if let (Some(Step::Index(_)), Value::Array(list)) = (place.last(), &value) {
            value = list.first()?.clone();
        }
        self.make_unique(name, &mut value, 0);
        Some(value)
    }

    /// A table that may take another's place in its list: like the first of its neighbours.
    fn spare(&self, place: &Path) -> Value {
        let own = place.of(&self.document).cloned().unwrap_or(Value::Boolean(false));
        let list = place.parent();
        let list = list.as_ref().and_then(|list| list.of(&self.document)?.as_array());
        let (index, list) = match (place.last(), list) {
            (Some(Step::Index(index)), Some(list)) => (*index, list),
            _ => return own,
        };
        let neighbour =
            list.iter().enumerate().find(|(other, value)| *other != index && value.is_table());
        let mut spare = match neighbour {
            Some((_, neighbour)) => neighbour.clone(),
            None if place.name() == "channel" => Value::Table(Table::from_iter([(
                "server".to_owned(),
                Value::String(String::new()),
            )])),
            None => own,
        };
        self.make_unique(place.name(), &mut spare, index);
        spare
    }

    /// Gives addresses in a value that nothing else has. `index` tells those apart that are made at once.
    fn make_unique(&self, name: &str, value: &mut Value, index: usize) {
        match value {
            Value::Table(table) => {
                for (name, value) in table.iter_mut() {
                    self.make_unique(name, value, index);
                }
            }
            Value::Array(list) => {
                for (place, element) in list.iter_mut().enumerate() {
                    self.make_unique(name, element, MOST * index + place);
                }
            }
            Value::String(text) => {
                let number = u32::try_from(MOST * MOST * self.supplied.len() + index).unwrap_or(0);
                // Of the range for benchmarks, which no network has.
                let host = Ipv4Addr::from_bits(Ipv4Addr::new(198, 19, 0, 1).to_bits() + number);
                match name {
                    "server" | "listen" => *text = format!("{host}:9"),
                    "addresses" if self.kind == Kind::Proxy => *text = host.to_string(),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Finds out by trying what it is that is refused, and puts it right.
    fn try_remedies(&mut self, refusal: &Refusal) -> bool {
        let remedies = self.remedies().into_iter();
        let effects = remedies.map(|remedy| (self.effect(&remedy, refusal), remedy));
        let effective = effects.filter(|(effect, _)| *effect != Effect::Fails);
        let Some((_, remedy)) = effective.min_by_key(|(effect, _)| *effect) else {
            return self.give_up(&refusal.message);
        };
        if !remedy.place.as_ref().is_some_and(|place| self.is_own(place) || self.was_there(place)) {
            let (what, fix) = parted(&refusal.message);
            self.note(remedy.place.as_ref(), &what, fix);
        }
        self.document = remedy.repaired;
        self.supplied.extend(remedy.place);
        true
    }

    fn give_up(&mut self, message: &str) -> bool {
        let (what, fix) = parted(message);
        self.note(None, &what, fix);
        false
    }

    fn effect(&self, remedy: &Remedy, refusal: &Refusal) -> Effect {
        let Some(text) = written(&remedy.trial) else { return Effect::Fails };
        match self.kind.refusal(&text) {
            Some(now) if now.message == refusal.message => Effect::Fails,
            Some(now) if named(&now.message, "missing field").is_some() => Effect::Fails,
            Some(now) if now.clue == Clue::Whole => Effect::Shifts,
            None | Some(_) => Effect::Cures,
        }
    }

    /// What may help, the most likely first.
    fn remedies(&self) -> Vec<Remedy> {
        let is_tables = |value: &Value| {
            let list = value.as_array();
            list.is_some_and(|list| !list.is_empty() && list.iter().all(Value::is_table))
        };
        let mut remedies = Vec::new();
        match self.kind {
            Kind::Proxy => {
                // There may have been a place to listen, which was wrong.
                let entrances =
                    ["socks", "intercept", "forward"].map(|key| Path::default().key(key));
                let place = entrances.into_iter().find(|place| self.was_there(place));
                remedies.push(self.remedy(place, |table| {
                    table.insert("socks".into(), Value::String("127.0.0.1:0".into()));
                }));
            }
            Kind::Tunnel => {}
            // What a directory cannot do without.
            Kind::Serve => {
                for name in ["listen", "shared_key", "addresses"] {
                    let table = Path::default().key("directory");
                    let place = table.key(name);
                    if let (Some(_), Some(value)) =
                        (table.of(&self.document), self.stand_in(&place))
                    {
                        let mut repaired = self.document.clone();
                        put(&mut repaired, &place, value);
                        let trial = repaired.clone();
                        remedies.push(Remedy { place: Some(place), trial, repaired });
                    }
                }
            }
        }
        for list in find(&self.document, |_, value| is_tables(value)) {
            remedies.extend(self.spares(&list));
        }
        let keys = self.document.as_table().into_iter().flat_map(Table::keys);
        let is_set = |value: &Value| !is_tables(value) && !value.is_table();
        let settings = keys.filter(|key| self.document.get(key.as_str()).is_some_and(is_set));
        remedies.extend(settings.map(|key| {
            let place = Path::default().key(key);
            self.remedy(Some(place), |table| _ = table.remove(key))
        }));
        remedies.extend(self.lengths());
        remedies
    }

    fn remedy(&self, place: Option<Path>, change: impl FnOnce(&mut Table)) -> Remedy {
        let mut repaired = self.document.clone();
        if let Some(table) = repaired.as_table_mut() {
            change(table);
        }
        Remedy { place, trial: repaired.clone(), repaired }
    }

    /// For each table of a list, the last first, another in its place. Tried with those after it
    /// replaced, too: the one that is refused is then the first whose replacement helps.
    fn spares(&self, list: &Path) -> Vec<Remedy> {
        let length = list.of(&self.document).and_then(Value::as_array).map_or(0, Vec::len);
        let mut trial = self.document.clone();
        let spare = |index: usize| {
            let place = list.index(index);
            let spare = self.spare(&place);
            let mut repaired = self.document.clone();
            put(&mut repaired, &place, spare.clone());
            put(&mut trial, &place, spare);
            Remedy { place: Some(place), trial: trial.clone(), repaired }
        };
        (0..length.min(MOST)).rev().map(spare).collect()
    }

    /// As many channels as can be, where there are none or too many.
    fn lengths(&self) -> Option<Remedy> {
        let name = if self.kind == Kind::Serve { "listen" } else { "channel" };
        let place = Path::default().key(name);
        let list = self.document.get(name).and_then(Value::as_array);
        let mut list = list.cloned().unwrap_or_default();
        match list.len() {
            1..=MOST => return None,
            0 => list.extend(self.stand_in(&place)?.as_array().into_iter().flatten().cloned()),
            _ => list.truncate(MOST),
        }
        Some(self.remedy(Some(place), |table| _ = table.insert(name.into(), Value::Array(list))))
    }

    /// Whether something is in the copy only, or has such things in it.
    fn is_own(&self, place: &Path) -> bool {
        self.supplied.iter().any(|own| place.is_within(own) || own.is_within(place))
    }

    /// Whether the person has written something there that did not stay in the copy.
    fn was_there(&self, place: &Path) -> bool {
        self.removed.contains(place) || self.lost.iter().any(|lost| lost == place.name())
    }

    /// Notes what is wrong.
    fn note(&mut self, place: Option<&Path>, what: &str, fix: Option<String>) {
        let place = place.filter(|place| **place != Path::default());
        let line = place.and_then(|place| self.places.line(place));
        let subject = match (line, place) {
            (Some(line), Some(place)) => format!("line {line}, {place}"),
            (None, Some(place)) => place.to_string(),
            (_, None) => "configuration".to_owned(),
        };
        let example = || {
            let place = place?;
            Some(format!(
                "write it as in: {}",
                all(self.kind).known(&place.table(), place.name())?.written()
            ))
        };
        let kind = self.kind;
        let fix =
            fix.or_else(example).unwrap_or_else(|| format!("sunder {kind} --help has an example"));
        let finding = Finding::new(Level::Error, subject, what, fix);
        self.found.push(Mistake { line, finding });
    }
}

/// Puts a value into a document. False if there is no such place.
fn put(document: &mut Value, place: &Path, value: Value) -> bool {
    let around = place.parent().and_then(|around| around.of_mut(document));
    match (place.last(), around) {
        (Some(Step::Key(name)), Some(Value::Table(table))) => {
            table.insert(name.clone(), value);
            true
        }
        (Some(Step::Index(index)), Some(Value::Array(list))) => {
            list.get_mut(*index).map(|old| *old = value).is_some()
        }
        _ => false,
    }
}

/// The document as a text. What is in it can be written, but for what TOML has no words for.
fn written(document: &Value) -> Option<String> {
    toml::to_string(document).ok()
}

/// The name in a message that begins like this.
fn named<'a>(message: &'a str, beginning: &str) -> Option<&'a str> {
    message.strip_prefix(beginning)?.strip_prefix(" `")?.split('`').next()
}

/// A number as messages have it: of a list, how many there are in it.
fn shown(value: &Value) -> String {
    match value {
        Value::Integer(number) => number.to_string(),
        Value::Float(number) => number.to_string(),
        Value::Array(list) => list.len().to_string(),
        other => other.to_string(),
    }
}
