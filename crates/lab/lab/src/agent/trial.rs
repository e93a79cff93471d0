//! What a controller requests: files, programs, emulated hosts and links of a trial.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;

use rustix::fs::statvfs;
use transport::choice::examine;
use transport::{ConnectionOptions, ExchangeProfile};

use super::ports::{open_ports, ports_of_network};
use super::program::{AgentProgram, ContainedProgram, OwnProgram};
use crate::host::EmulatedHost;
use crate::link::{LinkEndReport, StretchedLinkEnd};
use crate::network::not_set;
use crate::perform::followed::make_empty;
use crate::sandbox;
use crate::site::{
    AgentAnswer, AgentRequest, ContainedStart, FilePiece, PathReading, ProgramStart, SiteHost,
    SiteLinkEnd, TrialFilePath,
};

/// A trial at this site.
#[derive(Debug, Default)]
pub(super) struct AgentTrial {
    /// The programs, by their numbers.
    programs: Vec<AgentProgram>,
    /// The ends of links, in the order in which they were made. They stop before their hosts are
    /// removed.
    links: Vec<StretchedLinkEnd>,
    /// The emulated hosts, by name.
    hosts: BTreeMap<String, Arc<EmulatedHost>>,
}

impl AgentTrial {
    /// Does what is requested. `options` are those of the agent's connections.
    pub(super) fn perform(
        &mut self,
        request: AgentRequest,
        options: &ConnectionOptions,
    ) -> AgentAnswer {
        let answer = match request {
            AgentRequest::Begin => self.begin().map(|()| AgentAnswer::Done),
            AgentRequest::Put(piece) => put(&piece).map(|()| AgentAnswer::Done),
            AgentRequest::Zeros { path, length } => {
                zeros(&path, length).map(|()| AgentAnswer::Done)
            }
            AgentRequest::Start(start) => self.start(start),
            AgentRequest::Await { program, readiness, wait } => {
                self.program(program).and_then(|it| it.wait_until_ready(&readiness, wait))
            }
            AgentRequest::Ports { host } => self.ports(host.as_deref()).map(AgentAnswer::Ports),
            AgentRequest::Wait { program, wait } => {
                self.program(program).and_then(|it| it.wait(wait))
            }
            AgentRequest::Signal { program, signal } => {
                self.program(program).map(|it| it.signal(signal)).map(|()| AgentAnswer::Done)
            }
            AgentRequest::Check { program } => {
                self.program(program).and_then(AgentProgram::check).map(|()| AgentAnswer::Done)
            }
            AgentRequest::Explain { program, what } => {
                self.program(program).map(|it| AgentAnswer::Line(it.explain(&what)))
            }
            AgentRequest::Output { program, offset } => {
                self.program(program).and_then(|it| it.output_piece(offset)).map(AgentAnswer::Piece)
            }
            AgentRequest::Probe { address } => {
                probe(&address.to_string(), options).map(AgentAnswer::Path)
            }
            AgentRequest::Keepalive | AgentRequest::Hello { .. } => Ok(AgentAnswer::Done),
            AgentRequest::End => Ok(self.end()),
            AgentRequest::Host(host) => self.make_host(&host).map(|()| AgentAnswer::Done),
            AgentRequest::Link(end) => self.make_link(&end).map(|()| AgentAnswer::Done),
            AgentRequest::Links => self.reports().map(AgentAnswer::Links),
            AgentRequest::Contain(start) => self.contain(start),
        };
        answer.unwrap_or_else(AgentAnswer::Failed)
    }

    /// Ends all programs and empties the directory for files.
    fn begin(&mut self) -> Result<(), String> {
        self.end_programs();
        let files = sandbox::trial_files();
        make_empty(&files).map_err(|error| format!("cannot make {}: {error}", files.display()))
    }

    /// Ends all programs and removes the files.
    pub(super) fn end(&mut self) -> AgentAnswer {
        // Programs that have ended may have freed room.
        let was_full = has_no_room(Path::new(sandbox::SCRATCH));
        self.end_programs();
        let _ = fs::remove_dir_all(sandbox::trial_files());
        AgentAnswer::Over { was_full }
    }

    /// Ends all programs, and removes the emulated hosts with their links.
    fn end_programs(&mut self) {
        self.programs.clear();
        sandbox::end_programs();
        self.links.clear();
        self.hosts.clear();
    }

    fn program(&mut self, number: u8) -> Result<&mut AgentProgram, String> {
        let program = self.programs.get_mut(usize::from(number));
        // One that could not be started has a number, too.
        program.ok_or_else(|| format!("program {number} was not started"))
    }

    fn start(&mut self, start: ProgramStart) -> Result<AgentAnswer, String> {
        let number = self.next_number()?;
        let host = start.host.as_deref().map(|name| self.host(name)).transpose()?;
        self.programs.push(AgentProgram::Own(OwnProgram::start(start, host)?));
        Ok(AgentAnswer::Started(number))
    }

    fn contain(&mut self, start: ContainedStart) -> Result<AgentAnswer, String> {
        let program = self.next_number()?;
        // On the machine's own network nothing would be contained.
        let name = start.program.host.as_deref().ok_or("a contained program needs a host")?;
        let host = self.host(name)?;
        let (started, means) = ContainedProgram::start(start, &host)?;
        self.programs.push(AgentProgram::Contained(started));
        Ok(AgentAnswer::Contained { program, means })
    }

    fn next_number(&self) -> Result<u8, String> {
        u8::try_from(self.programs.len()).map_err(|_| "there are too many programs".into())
    }

    fn host(&self, name: &str) -> Result<Arc<EmulatedHost>, String> {
        self.hosts.get(name).cloned().ok_or_else(|| format!("there is no host {name}"))
    }

    /// The open ports of programs on a host, or else on the machine.
    fn ports(&self, host: Option<&str>) -> Result<Vec<(u8, u16)>, String> {
        match host {
            None => Ok(open_ports()),
            Some(name) => self
                .host(name)?
                .run(ports_of_network)
                .map_err(|error| format!("cannot see {name}'s ports: {error}")),
        }
    }

    fn make_host(&mut self, host: &SiteHost) -> Result<(), String> {
        let SiteHost { name, sysctl } = host;
        let failed = |error: io::Error| format!("cannot make host {name}: {error}");
        if self.hosts.contains_key(name) {
            return Err(format!("there is a host {name} already"));
        }
        let made = EmulatedHost::new(name).map_err(failed)?;
        for (path, value) in sysctl {
            made.set(path, value).map_err(|error| failed(not_set(path, value, &error)))?;
        }
        self.hosts.insert(name.clone(), Arc::new(made));
        Ok(())
    }

    fn make_link(&mut self, end: &SiteLinkEnd) -> Result<(), String> {
        sandbox::check_tun().map_err(|error| error.to_string())?;
        let host = self.host(&end.host)?;
        let made = StretchedLinkEnd::new(host, &end.options);
        let name = &end.options.name;
        self.links.push(made.map_err(|error| format!("cannot make link {name}: {error}"))?);
        Ok(())
    }

    fn reports(&self) -> Result<Vec<LinkEndReport>, String> {
        let reports = self.links.iter().map(StretchedLinkEnd::report);
        reports
            .collect::<io::Result<_>>()
            .map_err(|error| format!("cannot see what the links have carried: {error}"))
    }
}

/// Writes a piece of a file.
fn put(piece: &FilePiece) -> Result<(), String> {
    let path = piece.path.below(&sandbox::trial_files());
    let write = || {
        if piece.offset == 0 {
            make_parent(&path)?;
        }
        let mut file = open(&path, piece.offset == 0)?;
        if file.seek(SeekFrom::End(0))? != piece.offset {
            return Err(io::Error::other("its pieces are not in order"));
        }
        file.write_all(&piece.bytes)?;
        let mode = if piece.is_executable { 0o755 } else { 0o644 };
        file.set_permissions(fs::Permissions::from_mode(mode))
    };
    write().map_err(|error| unwritten(&piece.path, &error))
}

/// Creates a file of zero bytes.
fn zeros(name: &TrialFilePath, length: u32) -> Result<(), String> {
    let path = name.below(&sandbox::trial_files());
    let write = || {
        make_parent(&path)?;
        open(&path, true)?.set_len(length.into())
    };
    write().map_err(|error| unwritten(name, &error))
}

fn make_parent(path: &Path) -> io::Result<()> {
    path.parent().map_or(Ok(()), fs::create_dir_all)
}

/// Opens a file to append, a new one if it `begins`. What a program has put there in its place is
/// not followed.
fn open(path: &Path, begins: bool) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).custom_flags(libc::O_NOFOLLOW);
    if begins {
        match fs::remove_file(path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
            _ => options.create_new(true),
        };
    }
    options.open(path)
}

fn unwritten(path: &TrialFilePath, error: &io::Error) -> String {
    format!("cannot write {}: {}", path.as_str(), sandbox::write_error(error))
}

/// Whether a file system has no room left.
fn has_no_room(directory: &Path) -> bool {
    statvfs(directory).is_ok_and(|it| it.f_bavail == 0)
}

/// Measures the path to another agent.
fn probe(address: &str, options: &ConnectionOptions) -> Result<PathReading, String> {
    let exchange = ExchangeProfile { sent: 1, received: 1, rounds: 1 };
    let examined = examine(address, options, exchange)
        .map_err(|error| format!("cannot measure the path: {error}"))?;
    let measured = examined.measured;
    let mbit = |rate: Option<transport::probe::MeasuredRate>| rate.map(|it| it.rate * 8e-6);
    Ok(PathReading {
        round_trip_ms: examined.path.round_trip.as_secs_f64() * 1e3,
        sent: measured.map_or(0, |it| it.sent),
        lost: measured.map_or(0, |it| it.lost),
        up_mbit: mbit(measured.and_then(|it| it.up)),
        down_mbit: mbit(measured.and_then(|it| it.down)),
    })
}
