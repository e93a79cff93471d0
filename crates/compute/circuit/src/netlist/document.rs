//! The JSON document that yosys writes, as far as it is read.

use std::fmt;
use std::marker::PhantomData;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, Unexpected, Visitor};

/// The whole document.
#[derive(serde::Deserialize)]
pub(super) struct YosysDocument {
    pub(super) modules: OrderedEntries<YosysModule>,
}

#[derive(serde::Deserialize)]
pub(super) struct YosysModule {
    #[serde(default)]
    attributes: OrderedEntries<YosysText>,
    pub(super) ports: OrderedEntries<YosysPort>,
    pub(super) cells: OrderedEntries<YosysCell>,
}

#[derive(serde::Deserialize)]
pub(super) struct YosysPort {
    pub(super) direction: String,
    bits: Vec<YosysBit>,
}

#[derive(serde::Deserialize)]
pub(super) struct YosysCell {
    #[serde(rename = "type")]
    pub(super) kind: String,
    #[serde(default)]
    parameters: OrderedEntries<YosysText>,
    #[serde(default)]
    attributes: OrderedEntries<YosysText>,
    #[serde(default)]
    port_directions: OrderedEntries<String>,
    pub(super) connections: OrderedEntries<Vec<YosysBit>>,
}

impl YosysModule {
    /// The ports of a direction, with their bits.
    pub(super) fn ports(&self, direction: &str) -> impl Iterator<Item = (&str, &[YosysBit])> {
        let ports = self.ports.0.iter().filter(move |(_, port)| port.direction == direction);
        ports.map(|(name, port)| (&name[..], &port.bits[..]))
    }

    pub(super) fn is_top(&self) -> bool {
        self.attributes.get("top").is_some_and(YosysText::is_set)
    }
}

impl YosysCell {
    /// Whether a parameter is a number other than 0.
    pub(super) fn is_set(&self, parameter: &str) -> bool {
        self.parameters.get(parameter).is_some_and(YosysText::is_set)
    }

    /// A parameter that is a number; 0 if it is missing.
    pub(super) fn number(&self, parameter: &str) -> Option<u64> {
        self.parameters.get(parameter).map_or(Some(0), YosysText::number)
    }

    /// The digits of a parameter, the least significant one first.
    pub(super) fn digits(&self, parameter: &str) -> impl ExactSizeIterator<Item = bool> {
        let text = self.parameters.get(parameter).map_or("", |it| &it.0);
        text.bytes().rev().map(|digit| digit == b'1')
    }

    pub(super) fn is_output(&self, port: &str) -> bool {
        self.port_directions.get(port).is_some_and(|direction| direction == "output")
    }

    /// Where the source defines the cell, if yosys says so.
    pub(super) fn source(&self) -> Option<&str> {
        // That of the instance comes first, that of the cell in its module last.
        self.attributes.get("src").and_then(|it| it.0.rsplit('|').next())
    }
}

/// A bit: a net by its number, or a constant. Undefined bits are 0.
#[derive(Clone, Copy)]
pub(super) enum YosysBit {
    Net(u64),
    Constant(bool),
}

impl<'de> Deserialize<'de> for YosysBit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct YosysBitVisitor;

        impl Visitor<'_> for YosysBitVisitor {
            type Value = YosysBit;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("a number of a net, or \"0\", \"1\", \"x\" or \"z\"")
            }

            fn visit_u64<E: Error>(self, net: u64) -> Result<YosysBit, E> {
                Ok(YosysBit::Net(net))
            }

            fn visit_str<E: Error>(self, constant: &str) -> Result<YosysBit, E> {
                match constant {
                    "1" => Ok(YosysBit::Constant(true)),
                    "0" | "x" | "z" => Ok(YosysBit::Constant(false)),
                    _ => Err(E::invalid_value(Unexpected::Str(constant), &self)),
                }
            }
        }

        deserializer.deserialize_any(YosysBitVisitor)
    }
}

/// A value of a parameter or an attribute: text, or a number in binary digits.
pub(super) struct YosysText(String);

impl YosysText {
    fn is_set(&self) -> bool {
        self.0.contains('1')
    }

    fn number(&self) -> Option<u64> {
        let digits = self.0.trim_start_matches('0');
        if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 2).ok() }
    }
}

impl<'de> Deserialize<'de> for YosysText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct YosysTextVisitor;

        impl Visitor<'_> for YosysTextVisitor {
            type Value = YosysText;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("text or a number")
            }

            fn visit_u64<E: Error>(self, number: u64) -> Result<YosysText, E> {
                Ok(YosysText(format!("{number:b}")))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<YosysText, E> {
                Ok(YosysText(text.to_owned()))
            }
        }

        deserializer.deserialize_any(YosysTextVisitor)
    }
}

/// The entries of an object, in the order of the text.
pub(super) struct OrderedEntries<T>(pub(super) Vec<(String, T)>);

impl<T> OrderedEntries<T> {
    /// The value of a key.
    pub(super) fn get(&self, key: &str) -> Option<&T> {
        self.0.iter().find(|(name, _)| name == key).map(|(_, value)| value)
    }
}

impl<T> Default for OrderedEntries<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OrderedEntries<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OrderedEntriesVisitor<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OrderedEntriesVisitor<T> {
            type Value = OrderedEntries<T>;

            fn expecting(&self, formatter: &mut fmt::Formatter) -> fmt::Result {
                formatter.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut entries = Vec::new();
                while let Some(entry) = map.next_entry()? {
                    entries.push(entry);
                }
                Ok(OrderedEntries(entries))
            }
        }

        deserializer.deserialize_map(OrderedEntriesVisitor(PhantomData))
    }
}
