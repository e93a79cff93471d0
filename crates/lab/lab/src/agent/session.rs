//! Which request a controller may make when, and the bounds of a trial.

use crate::site::{AgentRefusal, AgentRequest, MAX_LINK_ENDS};

/// The maximum number of programs of a trial.
const MAX_PROGRAMS: u8 = 64;

/// The maximum number of files of a trial.
const MAX_FILES: u32 = 10_000;

/// The maximum length of all files of a trial, in bytes, without those of zero bytes.
const MAX_FILES_LEN: u64 = 1 << 30;

/// The maximum number of emulated hosts of a trial.
const MAX_HOSTS: u32 = 64;

/// What a controller may request now.
#[derive(Debug, Default)]
pub(crate) struct AgentSession {
    trial: Option<TrialUse>,
}

/// What a trial has used.
#[derive(Debug, Default)]
struct TrialUse {
    programs: u8,
    files: u32,
    files_len: u64,
    hosts: u32,
    links: usize,
}

impl AgentSession {
    /// Counts a request, and says whether it may be made.
    ///
    /// # Errors
    /// If it cannot be made now, or would exceed a bound.
    pub(crate) fn admit(&mut self, request: &AgentRequest) -> Result<(), AgentRefusal> {
        let refuse = |why: String| Err(AgentRefusal::Request(why));
        match request {
            AgentRequest::Hello { .. } => return refuse("a hello was there already".into()),
            AgentRequest::Begin => {
                self.trial = Some(TrialUse::default());
                return Ok(());
            }
            AgentRequest::Keepalive | AgentRequest::Probe { .. } => return Ok(()),
            _ => {}
        }
        let Some(trial) = &mut self.trial else {
            return refuse("there is no trial".into());
        };
        match request {
            AgentRequest::Put(piece) => {
                let files = trial.files + u32::from(piece.offset == 0);
                let files_len = trial.files_len + piece.bytes.len() as u64;
                if files > MAX_FILES || files_len > MAX_FILES_LEN {
                    return refuse(format!(
                        "a trial has at most {MAX_FILES} files of {} MiB",
                        MAX_FILES_LEN >> 20
                    ));
                }
                (trial.files, trial.files_len) = (files, files_len);
            }
            AgentRequest::Zeros { .. } => {
                if trial.files == MAX_FILES {
                    return refuse(format!("a trial has at most {MAX_FILES} files"));
                }
                trial.files += 1;
            }
            AgentRequest::Host(_) => {
                if trial.hosts == MAX_HOSTS {
                    return refuse(format!("a trial has at most {MAX_HOSTS} hosts"));
                }
                trial.hosts += 1;
            }
            AgentRequest::Link(_) => {
                if trial.links == MAX_LINK_ENDS {
                    return refuse(format!("a trial has at most {MAX_LINK_ENDS} links"));
                }
                trial.links += 1;
            }
            AgentRequest::Start(_) | AgentRequest::Contain(_) => {
                if trial.programs == MAX_PROGRAMS {
                    return refuse(format!("a trial has at most {MAX_PROGRAMS} programs"));
                }
                trial.programs += 1;
            }
            AgentRequest::Await { program, .. }
            | AgentRequest::Wait { program, .. }
            | AgentRequest::Signal { program, .. }
            | AgentRequest::Check { program }
            | AgentRequest::Explain { program, .. }
            | AgentRequest::Output { program, .. } => {
                if *program >= trial.programs {
                    return refuse(format!("there is no program {program}"));
                }
            }
            AgentRequest::End => self.trial = None,
            AgentRequest::Ports { .. }
            | AgentRequest::Links
            | AgentRequest::Hello { .. }
            | AgentRequest::Begin
            | AgentRequest::Keepalive
            | AgentRequest::Probe { .. } => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::site::{FilePiece, MAX_PIECE_LEN, ProgramStart, SiteHost, TrialFilePath};

    fn start() -> AgentRequest {
        AgentRequest::Start(ProgramStart {
            name: "client".into(),
            host: None,
            run: vec!["true".into()],
            environment: Vec::new(),
            directory: None,
            has_errors: false,
        })
    }

    fn put(offset: u64, len: usize) -> AgentRequest {
        let path = TrialFilePath::new("page").unwrap();
        AgentRequest::Put(FilePiece { path, is_executable: false, offset, bytes: vec![0; len] })
    }

    fn ports() -> AgentRequest {
        AgentRequest::Ports { host: None }
    }

    fn host() -> AgentRequest {
        AgentRequest::Host(SiteHost { name: "client".into(), sysctl: Vec::new() })
    }

    #[test]
    fn nothing_is_started_outside_a_trial() {
        let mut session = AgentSession::default();
        assert!(session.admit(&AgentRequest::Keepalive).is_ok());
        for request in [start(), put(0, 1), ports(), host(), AgentRequest::Links, AgentRequest::End]
        {
            assert!(session.admit(&request).is_err(), "{request:?}");
        }
        session.admit(&AgentRequest::Begin).unwrap();
        session.admit(&start()).unwrap();
        session.admit(&AgentRequest::End).unwrap();
        assert!(session.admit(&start()).is_err());
    }

    #[test]
    fn a_program_of_an_earlier_trial_is_unknown() {
        let mut session = AgentSession::default();
        session.admit(&AgentRequest::Begin).unwrap();
        session.admit(&start()).unwrap();
        let wait = AgentRequest::Wait { program: 0, wait: Duration::ZERO };
        session.admit(&wait).unwrap();
        session.admit(&AgentRequest::Begin).unwrap();
        assert!(session.admit(&wait).is_err());
    }

    #[test]
    fn programs_and_files_of_a_trial_are_bounded() {
        let mut session = AgentSession::default();
        session.admit(&AgentRequest::Begin).unwrap();
        let started = (0..100).filter(|_| session.admit(&start()).is_ok()).count();
        assert_eq!(started, usize::from(MAX_PROGRAMS));
        let pieces = (0..20_000).filter(|_| session.admit(&put(7, MAX_PIECE_LEN)).is_ok()).count();
        assert_eq!(pieces as u64, MAX_FILES_LEN / MAX_PIECE_LEN as u64);
        assert_eq!((0..100).filter(|_| session.admit(&host()).is_ok()).count(), 64);
        let files = (0..20_000).filter(|_| session.admit(&put(0, 0)).is_ok()).count();
        assert_eq!(files, 10_000);
        let zeros = AgentRequest::Zeros { path: TrialFilePath::new("z").unwrap(), length: 1 };
        assert!(session.admit(&zeros).is_err());
    }
}
