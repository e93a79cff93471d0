//! What two parties compute: the arguments of `sunder compute`, and the check of what both print.

use std::fs;

use serde::Deserialize;
use serde_json::Value;

use super::examples::{ComputedFunction, FunctionExample};

/// What both parties compute.
#[derive(Clone, Debug)]
pub(super) enum JointFunction {
    /// A function with a name.
    Named(ComputedFunction),
    /// The circuit in a file, by its path.
    CircuitFile(String),
    /// The values that both have.
    Intersection(IntersectionFiles),
}

/// The CSV files with the parties' values.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct IntersectionFiles {
    garbler: String,
    evaluator: String,
    /// The column of both files that is compared; without it, the only one.
    column: Option<String>,
    /// The maximum number of different values of a party; without it, the program's.
    pub(crate) rows: Option<u32>,
}

/// What the parties need to compute a function.
pub(super) struct PreparedFunction {
    /// What each party computes.
    pub(super) garbler: PartyFunction,
    pub(super) evaluator: PartyFunction,
    /// The output of a circuit, in hexadecimal; `None`: the parties find common values.
    output: Option<String>,
}

/// What one party computes.
pub(super) struct PartyFunction {
    /// The arguments that say what it computes.
    pub(super) arguments: Vec<String>,
    /// Its input, if it is to be in a file of its own.
    pub(super) input: Option<String>,
}

impl JointFunction {
    /// A function by its name, or the circuit at a path.
    ///
    /// # Errors
    /// If it is neither, in one line.
    pub(super) fn of_circuit(circuit: &str) -> Result<Self, String> {
        if let Some(named) = ComputedFunction::ALL.into_iter().find(|it| it.name() == circuit) {
            return Ok(Self::Named(named));
        }
        if circuit.starts_with('/') {
            return Ok(Self::CircuitFile(circuit.to_owned()));
        }
        let names = ComputedFunction::ALL.map(ComputedFunction::name).join(", ");
        Err(format!("circuit is {circuit}; give {names}, or the path of a file from / on"))
    }

    /// What the parties compute, with which inputs.
    ///
    /// # Errors
    /// If a file cannot be read, or is not a circuit, in one line.
    pub(super) fn prepare(&self) -> Result<PreparedFunction, String> {
        let (name, example) = match self {
            Self::Named(function) => (function.name(), function.example()),
            Self::CircuitFile(path) => {
                let named = |error: String| format!("the circuit {path}: {error}");
                let text = fs::read(path).map_err(|error| named(error.to_string()))?;
                (&path[..], FunctionExample::zeros(&text).map_err(named)?)
            }
            Self::Intersection(files) => return Ok(files.prepare()),
        };
        let party = |input: String| PartyFunction {
            arguments: ["--circuit", name].map(str::to_owned).to_vec(),
            input: Some(input),
        };
        Ok(PreparedFunction {
            garbler: party(example.garbler),
            evaluator: party(example.evaluator),
            output: Some(example.output),
        })
    }
}

impl IntersectionFiles {
    fn prepare(&self) -> PreparedFunction {
        let Self { garbler, evaluator, column, rows } = self;
        let arguments = |file: &String| {
            // Its time is predicted by the circuit.
            let arguments = ["psi", file, "--protocol", "circuit"];
            let mut arguments = arguments.map(str::to_owned).to_vec();
            if let Some(column) = column {
                arguments.extend(["--column".to_owned(), column.clone()]);
            }
            if let Some(rows) = rows {
                arguments.extend(["--rows".to_owned(), rows.to_string()]);
            }
            PartyFunction { arguments, input: None }
        };
        PreparedFunction {
            garbler: arguments(garbler),
            evaluator: arguments(evaluator),
            output: None,
        }
    }
}

impl PreparedFunction {
    /// Checks what the parties printed. Returns the number of common values, if they find these.
    ///
    /// # Errors
    /// If an output is wrong, in one line.
    pub(super) fn check(
        &self,
        garbler: &Value,
        evaluator: &Value,
    ) -> Result<Option<usize>, String> {
        if let Some(right) = &self.output {
            for (role, document) in [("garbler", garbler), ("evaluator", evaluator)] {
                let output = &document["output"];
                if output != right {
                    return Err(format!(
                        "the {role} has the output {output}, but {right} is right"
                    ));
                }
            }
            return Ok(None);
        }
        let common = &evaluator["common"];
        let known = common.as_array().ok_or("the evaluator has no common values")?;
        // The garbler does not learn them if only the evaluator is to.
        if !garbler["common"].is_null() && garbler["common"] != *common {
            return Err("the parties have found different common values".into());
        }
        Ok(Some(known.len()))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_circuit_is_a_name_or_a_path() {
        assert!(matches!(JointFunction::of_circuit("mincut"), Ok(JointFunction::Named(_))));
        let file = JointFunction::of_circuit("/dev/shm/trial/circuit.txt");
        assert!(matches!(file, Ok(JointFunction::CircuitFile(_))));
        for wrong in ["aes", "", "../circuit.txt", "--help"] {
            let error = JointFunction::of_circuit(wrong).unwrap_err();
            assert!(error.contains("aes128, sha256, mincut"), "{error}");
        }
    }

    #[test]
    fn both_parties_must_find_the_same_common_values() {
        let files = IntersectionFiles {
            garbler: "/a.csv".into(),
            evaluator: "/b.csv".into(),
            column: Some("email".into()),
            rows: Some(7),
        };
        let prepared = files.prepare();
        assert_eq!(
            prepared.garbler.arguments,
            ["psi", "/a.csv", "--protocol", "circuit", "--column", "email", "--rows", "7"]
        );
        let check = |garbler: Value, evaluator: Value| {
            prepared.check(&json!({ "common": garbler }), &json!({ "common": evaluator }))
        };
        assert_eq!(check(json!(["a", "b"]), json!(["a", "b"])), Ok(Some(2)));
        assert_eq!(check(Value::Null, json!([])), Ok(Some(0)));
        assert!(check(json!(["a"]), json!(["b"])).is_err());
        assert!(check(json!(["a"]), Value::Null).is_err());
    }
}
