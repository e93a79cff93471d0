//! What a person asks for: one experiment to run. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use lab::Experiment;
use lab::experiment::built_in;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::chosen_file;
use crate::refusal::RefusedRequest;
use crate::template::{self, RunTemplate, ScriptIsolation, TemplateExperiment};

/// The maximum number of measurements of each point.
const MAX_REPETITIONS: u32 = 50;

/// The maximum of the seed: the page's numbers have so many whole values.
const MAX_SEED: u64 = 1 << 53;

/// A template with values of its knobs, or a built-in experiment.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct RunRequest {
    /// The template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) template: Option<String>,
    /// The values of its knobs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    values: BTreeMap<String, Vec<Value>>,
    /// How often each point is measured.
    #[serde(default = "once")]
    repetitions: u32,
    /// The seed of what happens by chance; 1 if it is absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    seed: Option<u64>,
    /// The built-in experiment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) experiment: Option<String>,
}

/// What a request becomes.
pub(crate) struct RequestedExperiment {
    /// A few words for lists.
    pub(crate) title: String,
    /// The name of its file, without the extension.
    pub(crate) name: String,
    /// The experiment file.
    pub(crate) text: String,
    /// The same, parsed.
    pub(crate) experiment: Experiment,
    /// The archive that it refers to.
    pub(crate) archive: Option<Vec<u8>>,
}

/// The title of an experiment, its name, its text, and its archive.
type ExperimentParts = (String, String, String, Option<Vec<u8>>);

impl RunRequest {
    /// The experiment.
    ///
    /// # Errors
    /// If there is none of that name, or a value is wrong.
    pub(crate) fn experiment(
        &self,
        isolation: ScriptIsolation,
    ) -> Result<RequestedExperiment, RefusedRequest> {
        let (title, name, text, archive) = match (&self.template, &self.experiment) {
            (Some(template), None) => self.of_template(template, isolation)?,
            (None, Some(name)) => self.built_in(name)?,
            _ => {
                let why = "name either a template or an experiment";
                return Err(RefusedRequest::new("template", why));
            }
        };
        let file = format!("{name}.toml");
        let experiment = Experiment::parse(Path::new(&file), &text)
            .map_err(|error| RefusedRequest::new("values", error.to_string()))?;
        template::check_trials(experiment.trials())?;
        Ok(RequestedExperiment { title, name, text, experiment, archive })
    }

    /// What is kept of the request: of files only what tells them apart. Their texts are in the
    /// experiment file.
    pub(crate) fn without_files(mut self) -> Self {
        for value in self.values.values_mut().flatten() {
            *value = chosen_file::kept(value);
        }
        self
    }

    fn of_template(
        &self,
        name: &str,
        isolation: ScriptIsolation,
    ) -> Result<ExperimentParts, RefusedRequest> {
        let template = RunTemplate::find(name)
            .ok_or_else(|| RefusedRequest::new("template", "there is no such template"))?;
        if !(1..=MAX_REPETITIONS).contains(&self.repetitions) {
            let why = format!("give a whole number from 1 to {MAX_REPETITIONS}");
            return Err(RefusedRequest::new("repetitions", why));
        }
        let filled = template.experiment(&self.values, self.repetitions, isolation)?;
        let TemplateExperiment { mut experiment, archive } = filled;
        if let Some(seed) = self.seed {
            let seed = i64::try_from(seed).ok().filter(|_| seed <= MAX_SEED).ok_or_else(|| {
                RefusedRequest::new("seed", format!("give a whole number from 0 to {MAX_SEED}"))
            })?;
            experiment.insert("seed".into(), seed.into());
        }
        let text = toml::to_string(&experiment)
            .map_err(|error| RefusedRequest::new("values", error.to_string()))?;
        Ok((template.title().to_owned(), name.to_owned(), text, archive))
    }

    fn built_in(&self, name: &str) -> Result<ExperimentParts, RefusedRequest> {
        if !self.values.is_empty() || self.repetitions != once() || self.seed.is_some() {
            let why = "a built-in experiment has values of its own; leave them out";
            return Err(RefusedRequest::new("values", why));
        }
        let found = built_in().find(|(known, _)| *known == name);
        let (name, text) = found
            .ok_or_else(|| RefusedRequest::new("experiment", "there is no such experiment"))?;
        Ok((name.to_owned(), name.to_owned(), text.to_owned(), None))
    }
}

fn once() -> u32 {
    1
}

#[cfg(test)]
mod tests {
    use lab::experiment::run_with;
    use lab::{Trial, TrialError};
    use serde_json::json;

    use super::*;
    use crate::template::{networks, templates};

    fn request(template: &str, values: &Value) -> RunRequest {
        let request = json!({ "template": template, "values": values });
        serde_json::from_value(request).unwrap()
    }

    /// The default values of a template's knobs.
    fn defaults(template: &Value) -> Value {
        let knobs = template["knobs"].as_array().unwrap().iter();
        let given = knobs.filter(|knob| !knob["default"].is_null());
        given
            .map(|knob| (knob["name"].as_str().unwrap().to_owned(), knob["default"].clone()))
            .collect()
    }

    fn documents() -> Vec<Value> {
        templates().iter().map(RunTemplate::document).collect()
    }

    fn document(name: &str) -> Value {
        documents().into_iter().find(|it| it["name"] == name).unwrap()
    }

    fn accepted(request: &RunRequest) -> RequestedExperiment {
        request.experiment(ScriptIsolation::Sandbox).unwrap_or_else(|refused| {
            panic!("{:?}: {}: {}", request.template, refused.field, refused.why)
        })
    }

    /// The refusal of default values, of which one is replaced.
    fn refused(template: &str, knob: &str, values: Value) -> RefusedRequest {
        let mut all = defaults(&document(template));
        all[knob] = values;
        let request = request(template, &all);
        request
            .experiment(ScriptIsolation::Sandbox)
            .err()
            .unwrap_or_else(|| panic!("{template}: {knob} is accepted"))
    }

    /// The first trial of an experiment.
    fn first_trial(requested: &RequestedExperiment) -> Trial {
        let mut first = None;
        let out = tempfile::tempdir().unwrap();
        let _ = run_with(
            &requested.experiment,
            out.path(),
            |_| {},
            |trial, _| {
                first = Some(trial.clone());
                Err(TrialError("enough".into()))
            },
        );
        first.unwrap()
    }

    fn lists(text: &str) -> RunRequest {
        let mut values = defaults(&document("sets"));
        values["garbler_list"] = json!([{ "name": "a.csv", "text": text }]);
        request("sets", &values)
    }

    #[test]
    fn each_template_is_an_experiment_with_its_default_values_and_each_option() {
        for template in documents() {
            let name = template["name"].as_str().unwrap();
            let values = defaults(&template);
            let requested = accepted(&request(name, &values));
            assert!((1..=2).contains(&requested.experiment.trials()), "{name}");
            assert!(!requested.experiment.describe().values.is_empty());
            let line = template["about"].as_str().unwrap();
            assert!(!line.ends_with('.') && !line.contains('\n'), "{line}");
            for knob in template["knobs"].as_array().unwrap() {
                for option in knob["options"].as_array().into_iter().flatten() {
                    let mut values = values.clone();
                    values[knob["name"].as_str().unwrap()] = json!([option["name"]]);
                    accepted(&request(name, &values));
                }
            }
        }
    }

    #[test]
    fn numbers_of_templates_and_networks_are_in_their_ranges() {
        let networks = serde_json::to_value(networks()).unwrap();
        for template in documents() {
            let knobs = template["knobs"].as_array().unwrap();
            for knob in knobs.iter().filter(|knob| knob["kind"] == "number") {
                let [least, most] = ["min", "max"].map(|end| knob[end].as_f64().unwrap());
                let own = ["default", "suggested"].map(|of| knob[of].as_array().unwrap().clone());
                let of_network = |network: &Value| {
                    network["values"].get(knob["name"].as_str().unwrap()).cloned()
                };
                let preset = networks.as_array().unwrap().iter().filter_map(of_network);
                for value in own.into_iter().flatten().chain(preset) {
                    let value = value.as_f64().unwrap();
                    assert!((least..=most).contains(&value), "{template}: {knob}: {value}");
                }
            }
        }
    }

    #[test]
    fn programs_of_options_that_are_not_chosen_are_left_out() {
        let programs = |path: Value| {
            let mut values = defaults(&document("stream"));
            values["path"] = path;
            first_trial(&accepted(&request("stream", &values))).programs.len()
        };
        assert_eq!((programs(json!(["tcp"])), programs(json!(["micss"]))), (1, 3));
        assert_eq!((programs(json!(["micss", "tcp"])), programs(json!(["tcp", "micss"]))), (3, 1));
    }

    #[test]
    fn the_text_of_a_file_is_neither_a_placeholder_nor_part_of_the_experiment() {
        for text in [
            "email\n{sunder}\n{{files}} }{ {\n",
            "\"\"\"\n[hosts.evil]\n\'\'\'\n[[programs]]\nrun = [\"sh\"]\n",
            "\\u0000 \\\" \r\n\t\u{7f}\u{1b}[0m \u{2028}\u{feff}",
            "{",
            "}}}",
            " a ",
        ] {
            let trial = first_trial(&accepted(&lists(text)));
            assert_eq!(trial.files["garbler.csv"], text);
            assert_eq!(trial.hosts.len(), 2);
            assert!(trial.programs.is_empty());
            let names: Vec<&String> = trial.files.keys().collect();
            assert_eq!(names, ["evaluator.csv", "garbler.csv"]);
        }
    }

    #[test]
    fn scripts_of_the_page_are_contained_whatever_they_say() {
        let mut values = defaults(&document("scripts"));
        let text = "exit 0\n\"\"\"\n[measure.options]\ncontain = false\nlimits = {}\n'''\n";
        for knob in ["server_script", "client_script"] {
            values[knob] = json!([{ "name": "../pair.sh", "text": text }]);
        }
        let trial = first_trial(&accepted(&request("scripts", &values)));
        let options = &trial.measure.options;
        assert_eq!(options["contain"].as_bool(), Some(true));
        assert_eq!(options["limits"]["output_mib"].as_integer(), Some(1));
        assert_eq!(trial.files["pair-server.sh"], text);
        values["contain"] = json!([false]);
        let added = request("scripts", &values).experiment(ScriptIsolation::Sandbox).err().unwrap();
        assert_eq!(added.field, "contain");
    }

    #[test]
    fn a_file_that_is_none_is_refused() {
        let text = "a\nb\n";
        let long = "x".repeat(2_000_001);
        for value in [
            json!([{ "name": "a.csv" }]),
            json!([{ "name": "a.csv", "bytes": 4, "sha256": "00" }]),
            json!([{ "name": "a.csv", "text": text, "path": "/etc/passwd" }]),
            json!([{ "name": "a.csv", "text": text }, { "name": "b.csv", "text": text }]),
            json!([{ "name": "a.csv", "text": 5 }]),
            json!([{ "name": "", "text": text }]),
            json!([{ "name": "a\nb", "text": text }]),
            json!([{ "name": "n".repeat(256), "text": text }]),
            json!([{ "name": "a.csv", "text": " \n" }]),
            json!([{ "name": "a.csv", "text": "a\u{0}b" }]),
            json!([{ "name": "a.csv", "text": long }]),
            json!([["a.csv", text]]),
            json!(["/etc/passwd"]),
            json!([null]),
        ] {
            let refused = refused("sets", "garbler_list", value);
            assert_eq!(refused.field, "garbler_list");
            assert!(!refused.why.contains('\n') && refused.why.len() < 200, "{}", refused.why);
        }
    }

    #[test]
    fn the_name_of_a_file_is_no_path() {
        let mut values = defaults(&document("sets"));
        let name = "../../../etc/passwd";
        values["evaluator_list"] = json!([{ "name": name, "text": "a\nb\n" }]);
        let requested = accepted(&request("sets", &values));
        assert!(!requested.text.contains("passwd"));
    }

    #[test]
    fn long_files_limit_the_number_of_points() {
        let mut request = lists(&"x\n".repeat(900_000));
        accepted(&request);
        request.values.insert("delay_ms".into(), (0..64).map(|it| json!(it)).collect());
        assert_eq!(request.experiment(ScriptIsolation::Sandbox).err().unwrap().field, "values");
    }

    #[test]
    fn of_a_file_the_request_keeps_name_length_and_digest() {
        let request = lists("abc").without_files();
        let kept = serde_json::to_value(&request).unwrap();
        // FIPS 180-2, B.1.
        let sha256 = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let file = json!([{ "name": "a.csv", "bytes": 3, "sha256": sha256 }]);
        assert_eq!(kept["values"]["garbler_list"], file);
        assert_eq!(kept["values"]["rows"], json!([100.0]));
        assert_eq!(
            request.experiment(ScriptIsolation::Sandbox).err().unwrap().why,
            "choose the file again"
        );
        assert_eq!(request.clone().without_files(), request);
    }

    #[test]
    fn a_seed_is_one_of_the_experiment() {
        let text = |seed: &Value| {
            let values = defaults(&document("compute"));
            let request = json!({ "template": "compute", "values": values, "seed": seed });
            let request: RunRequest = serde_json::from_value(request).map_err(|_| "no number")?;
            request.experiment(ScriptIsolation::Sandbox).map(|it| it.text).map_err(|refused| {
                assert_eq!(refused.field, "seed");
                "refused"
            })
        };
        assert!(text(&json!(7)).unwrap().contains("\nseed = 7\n"));
        assert!(text(&json!(0)).is_ok() && text(&json!(1_u64 << 53)).is_ok());
        assert!(!text(&Value::Null).unwrap().contains("\nseed ="));
        for wrong in [json!((1_u64 << 53) + 1), json!(u64::MAX)] {
            assert_eq!(text(&wrong), Err("refused"));
        }
        for wrong in [json!(-1), json!(1.5), json!("1"), json!(1e300), json!([1])] {
            assert_eq!(text(&wrong), Err("no number"));
        }
        let built_in = json!({ "experiment": "compute-loss", "seed": 1 });
        let built_in: RunRequest = serde_json::from_value(built_in).unwrap();
        assert_eq!(built_in.experiment(ScriptIsolation::Sandbox).err().unwrap().field, "values");
    }

    #[test]
    fn numbers_that_must_be_whole_have_no_fraction() {
        assert!(refused("chat", "members", json!([10.5])).why.contains("whole"));
        assert_eq!(refused("chat", "members", json!([2])).field, "members");
        let mut all = defaults(&document("chat"));
        all["members"] = json!([12.0]);
        assert!(accepted(&request("chat", &all)).text.contains("members = [12]"));
    }
}
