//! The files of results.

use std::fs;

use serde_json::{Value, json};
use sunder_lab::experiment::run_with;
use sunder_lab::{Trial, TrialContext, TrialMeasurement};

use super::{TEXT, directory, experiment, read, run_to_the_end};

#[test]
fn results_csv_has_a_row_for_each_trial() {
    let out = directory();
    run_to_the_end(&TEXT.replace("repetitions = 3", "repetitions = 1"), &out);
    let slow = 10.0 * 1448.0 / 1500.0;
    let fast = 100.5 * 1448.0 / 1500.0;
    let expected = format!(
        "repetition,rate,name,speed,speed_predicted,far,far_predicted,late_ms,missed,attempts,invalid\n\
         1,10,\"a, b\",1,{slow},0.30000000000000004,,0.125,0,1,false\n\
         1,10,c,2,{slow},0.30000000000000004,,0.25,0,1,false\n\
         1,100.5,\"a, b\",3,{fast},0.30000000000000004,,0.375,0,1,false\n\
         1,100.5,c,4,{fast},0.30000000000000004,,0.5,0,1,false\n"
    );
    assert_eq!(read(&out, "results.csv"), expected);
}

#[test]
fn results_json_has_the_experiment_the_machine_and_the_trials() {
    let out = directory();
    let results = run_to_the_end(TEXT, &out);
    let document = read(&out, "results.json");
    assert!(document.ends_with("}\n"));
    let document: Value = serde_json::from_str(&document).unwrap();
    assert_eq!(document["name"], "made-up");
    assert_eq!(document["about"], "How fast, and how \"far\"");
    assert_eq!(document["paper"], "001");
    assert_eq!((&document["repetitions"], &document["seed"]), (&json!(3), &json!(7)));
    assert_eq!(document["keys"], json!(["rate", "name"]));
    let values = json!([{"name": "speed", "unit": "Mbit/s"}, {"name": "far", "unit": ""}]);
    assert_eq!(document["values"], values);
    assert_eq!(document["sha256"].as_str().unwrap().len(), 64);
    let started = document["started"].as_str().unwrap();
    assert!(
        started.starts_with("20") && started.ends_with('Z') && started.len() == 20,
        "{started}"
    );
    for key in ["cpu", "kernel", "congestion", "sunder"] {
        assert!(!document["machine"][key].as_str().unwrap().is_empty(), "{key}");
    }
    assert!(document["machine"]["cores"].as_u64().unwrap() > 0);
    let fifth = json!({
        "repetition": 2,
        "point": {"rate": 10, "name": "a, b"},
        "values": {"speed": 5.0, "far": 0.1 + 0.2},
        "predictions": {"speed": 10.0 * 1448.0 / 1500.0},
        "late_ms": 0.625,
        "missed": 0,
        "attempts": 1,
        "invalid": false,
    });
    assert_eq!(document["trials"][4], fifth);
    // The ninth and later trials are more than 1 ms late.
    assert_eq!((results.invalid, &document["invalid"]), (4, &json!(4)));
}

#[test]
fn a_point_is_the_median_of_its_repetitions() {
    let out = directory();
    let results = run_to_the_end(TEXT, &out);
    let summaries = results.summaries();
    assert_eq!(summaries.len(), 4);
    assert_eq!(summaries[1].settings().collect::<Vec<_>>(), ["10", "c"]);
    let speed = summaries[1].values[0].unwrap();
    // The third attempt is late.
    assert_eq!((speed.low, speed.middle, speed.high), (2.0, 4.0, 6.0));
    assert_eq!(summaries[1].predictions, [Some(10.0 * 1448.0 / 1500.0), None]);
}

#[test]
fn graphs_show_measurements_and_predictions() {
    let out = directory();
    run_to_the_end(TEXT, &out);
    let fast = read(&out, "how-fast.svg");
    for message in
        ["How fast?", "name = a, b", "name = c", "speed, Mbit/s", "rate", "measured", "predicted"]
    {
        assert!(fast.contains(message), "{message}");
    }
    let far = read(&out, "far-of-c-alone.svg");
    assert!(far.contains("far") && !far.contains("predicted") && !far.contains("a, b"));
    let left: Vec<String> = fs::read_dir(out.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.contains(".new"))
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

/// The values have a place each, which is their number. A value that is missing has none.
#[test]
fn numbered_values_are_drawn_over_their_numbers() {
    let out = directory();
    let values = "far_1 = { after = \"1\" }\nfar_2 = { after = \"2\" }\nfar_3 = { after = \"3\" }";
    let text = TEXT.replace("far = { after = \"far\" }", values);
    let text =
        text.replace("x = \"rate\"\ny = \"far\"", "x = \"place\"\ny = \"far_*\"\nlines = \"rate\"");
    let measure = |_: &Trial, _: TrialContext<'_>| {
        let values = [("speed", 1.0), ("far_1", 2.0), ("far_2", 3.0)];
        let values = values.map(|(name, value)| (name.to_owned(), value)).into();
        Ok(TrialMeasurement { values, ..TrialMeasurement::default() })
    };
    run_with(&experiment(&text), out.path(), |_| {}, measure).unwrap();
    let graph = read(&out, "far-of-c-alone.svg");
    assert!(graph.contains("place") && !graph.contains("far_"));
    // Two dots of each line, and one in its legend.
    assert_eq!(graph.matches("<circle").count(), 2 * (2 + 1));
}
