//! Contained programs at sites, as bytes, pure.

use std::time::Duration;

use containment::{ContainmentLimit, ContainmentLimits};
use encoding::{FieldReader, FieldWrite as _};

use super::{AgentMessageError, ProgramStart};

/// The limits in the order of their numbers, from 1.
const LIMITS: [ContainmentLimit; 5] = [
    ContainmentLimit::Memory,
    ContainmentLimit::Processes,
    ContainmentLimit::Disk,
    ContainmentLimit::Output,
    ContainmentLimit::Time,
];

/// How to start a program of a stranger.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ContainedStart {
    /// The program. It gets a copy of the folder of its name, among the trial's files, and its
    /// directory is relative to that.
    pub(crate) program: ProgramStart,
    /// What it may use.
    pub(crate) limits: ContainmentLimits,
}

impl ContainedStart {
    pub(in crate::site) fn put(&self, bytes: &mut Vec<u8>) {
        self.program.put(bytes);
        let ContainmentLimits {
            memory_mib,
            processes,
            disk_mib,
            files,
            output_mib,
            processors,
            time,
        } = self.limits;
        bytes.put_u64(memory_mib);
        bytes.put_u32(processes);
        bytes.put_u64(disk_mib);
        bytes.put_u32(files);
        bytes.put_u64(output_mib);
        bytes.extend(processors.to_be_bytes());
        bytes.put_u64(u64::try_from(time.as_micros()).unwrap_or(u64::MAX));
    }

    pub(in crate::site) fn read(reader: &mut FieldReader<'_>) -> Result<Self, AgentMessageError> {
        let program = ProgramStart::read(reader)?;
        let limits = ContainmentLimits {
            memory_mib: reader.u64()?,
            processes: reader.u32()?,
            disk_mib: reader.u64()?,
            files: reader.u32()?,
            output_mib: reader.u64()?,
            processors: f64::from_be_bytes(reader.take()?),
            time: Duration::from_micros(reader.u64()?),
        };
        // Those of an experiment's file are in narrower bounds.
        let is_possible = (1..=65_536).contains(&limits.memory_mib)
            && (1..=4096).contains(&limits.processes)
            && (1..=65_536).contains(&limits.disk_mib)
            && (1..=1_000_000).contains(&limits.files)
            && (1..=64).contains(&limits.output_mib)
            && limits.processors > 0.0
            && limits.processors <= 1024.0
            && limits.time <= Duration::from_secs(24 * 3600);
        match &program.host {
            None => Err(AgentMessageError::Value("host of a contained program")),
            Some(_) if !is_possible => {
                Err(AgentMessageError::Value("limit of a contained program"))
            }
            Some(_) => Ok(Self { program, limits }),
        }
    }
}

/// The number of a limit at which a program was stopped; 0 if it was not.
pub(in crate::site) fn number_of(limit: Option<ContainmentLimit>) -> u8 {
    let place = limit.and_then(|limit| LIMITS.iter().position(|it| *it == limit));
    place.and_then(|place| u8::try_from(place + 1).ok()).unwrap_or(0)
}

pub(in crate::site) fn read_limit(
    reader: &mut FieldReader<'_>,
) -> Result<Option<ContainmentLimit>, AgentMessageError> {
    let number = usize::from(reader.u8()?);
    match number.checked_sub(1) {
        None => Ok(None),
        Some(place) => {
            let limit = LIMITS.get(place).ok_or(AgentMessageError::Value("limit"))?;
            Ok(Some(*limit))
        }
    }
}
