//! Whether this machine has the programs that trials start.

use std::collections::BTreeSet;
use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use super::Problem;
use crate::trial::Trial;

/// Debian's packages of programs that experiments use.
const PACKAGES: [(&str, &str); 3] =
    [("iperf3", "iperf3"), ("nginx", "nginx-light"), ("wrk", "wrk")];

/// Looks for every program; the error is about the first that is missing.
pub(super) fn find<'a>(trials: impl Iterator<Item = &'a Trial>) -> Result<(), Problem> {
    let mut found: BTreeSet<&str> = BTreeSet::new();
    for trial in trials {
        let started = trial.programs.iter().map(|program| ("programs", &program.run));
        let measuring = trial.measure.run.iter().map(|run| ("measure", run));
        for (key, program) in
            started.chain(measuring).filter_map(|(key, run)| Some((key, run.first()?)))
        {
            if !found.contains(program.as_str()) {
                find_one(program).map_err(|what| Problem::new(format!("{key}.run"), what))?;
                found.insert(program);
            }
        }
    }
    Ok(())
}

fn find_one(program: &str) -> Result<(), String> {
    let path = Path::new(program);
    if path.is_absolute() {
        return if is_program(path) { Ok(()) } else { Err(missing(program, "does not exist")) };
    }
    if program.contains('/') {
        return Err(format!("{program} is not found from everywhere; write its path from / on"));
    }
    let places = env::var_os("PATH").unwrap_or_default();
    if env::split_paths(&places).any(|place| is_program(&place.join(program))) {
        return Ok(());
    }
    Err(missing(program, "is not in PATH"))
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
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
