//! The option `contain`.

use serde::Deserialize;

/// By what a pair of scripts is contained.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "toml::Value")]
pub(super) enum ScriptContainment {
    /// By nothing: `false`.
    Nothing,
    /// Each by a sandbox: `true`.
    #[default]
    Sandbox,
    /// Each by a virtual machine in a sandbox: `"vm"`.
    Machine,
}

impl ScriptContainment {
    /// Whether the scripts have limits.
    pub(super) fn is_contained(self) -> bool {
        self != Self::Nothing
    }
}

impl TryFrom<toml::Value> for ScriptContainment {
    type Error = String;

    fn try_from(value: toml::Value) -> Result<Self, String> {
        match &value {
            toml::Value::Boolean(false) => Ok(Self::Nothing),
            toml::Value::Boolean(true) => Ok(Self::Sandbox),
            toml::Value::String(word) if word == "vm" => Ok(Self::Machine),
            other => Err(format!("contain is {other}; use true, false or \"vm\"")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_three_values() {
        let of = |text: &str| {
            let table: toml::Table = toml::from_str(&format!("contain = {text}")).unwrap();
            ScriptContainment::try_from(table["contain"].clone())
        };
        assert_eq!(of("true"), Ok(ScriptContainment::Sandbox));
        assert_eq!(of("false"), Ok(ScriptContainment::Nothing));
        assert_eq!(of("\"vm\""), Ok(ScriptContainment::Machine));
        for wrong in ["1", "\"sandbox\"", "\"true\""] {
            let expected = format!("contain is {wrong}; use true, false or \"vm\"");
            assert_eq!(of(wrong), Err(expected));
        }
    }
}
