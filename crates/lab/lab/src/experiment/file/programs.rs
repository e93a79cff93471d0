//! Checks that this machine has the programs that trials start.

use std::collections::BTreeSet;
use std::path::Path;

use crate::experiment::SweepPoint;
use crate::experiment::error::ExperimentProblem;
use crate::perform::driver;
use crate::search::{find_program, is_program};

/// Debian's packages for programs that experiments use.
const PACKAGES: [(&str, &str); 3] =
    [("iperf3", "iperf3"), ("nginx", "nginx-light"), ("wrk", "wrk")];

/// Searches for every program of this machine, and the scripts, which are always on this machine.
/// The error is about the first missing one.
pub(crate) fn find(points: &[SweepPoint], are_at_sites: bool) -> Result<(), ExperimentProblem> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for SweepPoint { trial, programs, .. } in points {
        driver::check_paths(&trial.measure)
            .map_err(|what| ExperimentProblem::new("measure.options", what))?;
        if are_at_sites {
            continue;
        }
        for (i, program) in programs.iter().zip(&trial.programs) {
            find_once(&mut found, &program.run, || format!("programs[{i}].run"))?;
        }
        if let Some(run) = &trial.measure.run {
            find_once(&mut found, run, || String::from("measure.run"))?;
        }
    }
    Ok(())
}

/// Searches for the program of a command, unless it was found before.
fn find_once<'a>(
    found: &mut BTreeSet<&'a str>,
    run: &'a [String],
    key: impl Fn() -> String,
) -> Result<(), ExperimentProblem> {
    let Some(program) = run.first().filter(|program| !found.contains(program.as_str())) else {
        return Ok(());
    };
    find_one(program).map_err(|what| ExperimentProblem::new(key(), what))?;
    found.insert(program);
    Ok(())
}

fn find_one(program: &str) -> Result<(), String> {
    let path = Path::new(program);
    if path.is_absolute() {
        return match path.metadata() {
            Ok(file) if !file.is_file() => Err(format!("{program} is not a program; name a file")),
            Ok(_) if !is_program(path) => Err(format!(
                "{program} is not executable; name a program, or make it one (chmod +x)"
            )),
            Ok(_) => Ok(()),
            Err(_) => Err(missing(program, "does not exist")),
        };
    }
    if program.contains('/') {
        return Err(format!("{program} is not found from everywhere; write its path from / on"));
    }
    find_program(program).map(drop).ok_or_else(|| missing(program, "is not in PATH"))
}

fn missing(program: &str, why: &str) -> String {
    let name = program.rsplit('/').next().unwrap_or(program);
    match PACKAGES.iter().find(|(of, _)| *of == name) {
        Some((_, package)) => {
            format!("{program} {why}; install it (Debian: apt install {package})")
        }
        None => format!("{program} {why}; install it"),
    }
}
