//! Standard input to standard output.

use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStderr, Command, Output, Stdio};

use super::pattern;

/// A receiver that writes to standard output, killed when dropped.
struct StreamReceiver {
    child: Child,
    errors: BufReader<ChildStderr>,
    /// What follows `sunder` in the command that it prints.
    command: Vec<String>,
}

impl StreamReceiver {
    fn start(directory: &Path, output: Stdio, more: &[&str]) -> Self {
        Self::start_at(["--listen", "127.0.0.1:0"], directory, output, more)
    }

    fn start_at(place: [&str; 2], directory: &Path, output: Stdio, more: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(["transport", "receive", "--out", "-"]).args(place).args(more);
        command.current_dir(directory).stdin(Stdio::null());
        let mut child = command.stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        let mut errors = BufReader::new(child.stderr.take().unwrap());
        let mut line = String::new();
        while !line.contains("sunder transport send - ") {
            line.clear();
            assert!(errors.read_line(&mut line).unwrap() > 0);
        }
        let words = line.split_whitespace().skip_while(|word| *word != "transport");
        let command = words.map(str::to_owned).collect();
        Self { child, errors, command }
    }

    fn send(&self, directory: &Path) -> Child {
        let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
        command.args(&self.command).current_dir(directory).env("XDG_STATE_HOME", directory);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }

    /// The exit code, and the last line of standard error.
    fn end(mut self) -> (Option<i32>, String) {
        let mut rest = String::new();
        self.errors.read_to_string(&mut rest).unwrap();
        let last = rest.lines().last().unwrap_or_default().to_owned();
        (self.child.wait().unwrap().code(), last)
    }
}

impl Drop for StreamReceiver {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The peak memory of a process, in bytes.
fn peak_memory(process: &Child) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() << 10
}

fn ended(mut sender: Child) -> Output {
    drop(sender.stdin.take());
    sender.wait_with_output().unwrap()
}

#[test]
fn a_stream_of_unknown_length_arrives_in_bounded_memory() {
    let directory = tempfile::tempdir().unwrap();
    for more in [&[][..], &["--code"]] {
        let output = File::create(directory.path().join("out")).unwrap();
        let receiver = StreamReceiver::start(directory.path(), output.into(), more);
        let mut sender = receiver.send(directory.path());
        let block = pattern(1 << 20);
        let mut input = sender.stdin.take().unwrap();
        for _ in 0..200 {
            input.write_all(&block).unwrap();
        }
        input.write_all(b"end").unwrap();
        for process in [&sender, &receiver.child] {
            assert!(peak_memory(process) < 100 << 20, "{}", peak_memory(process));
        }
        drop(input);
        let sent = ended(sender);
        let (code, line) = receiver.end();
        assert_eq!((sent.status.code(), code), (Some(0), Some(0)), "{line}");
        let received = fs::read(directory.path().join("out")).unwrap();
        assert_eq!(received.len(), (200 << 20) + 3);
        assert!(received.chunks(1 << 20).take(200).all(|received| received == block));
        assert!(received.ends_with(b"end"));
    }
}

/// What was written arrives before the stream's end.
#[test]
fn a_stream_does_not_wait_for_more() {
    let directory = tempfile::tempdir().unwrap();
    let mut receiver = StreamReceiver::start(directory.path(), Stdio::piped(), &[]);
    let mut output = receiver.child.stdout.take().unwrap();
    let mut sender = receiver.send(directory.path());
    let mut input = sender.stdin.take().unwrap();
    for line in [b"one\n", b"two\n"] {
        input.write_all(line).unwrap();
        let mut received = [0; 4];
        output.read_exact(&mut received).unwrap();
        assert_eq!(&received, line);
    }
    drop(input);
    assert_eq!(ended(sender).status.code(), Some(0));
    assert_eq!(receiver.end().0, Some(0));
}

#[test]
fn an_aborted_stream_is_not_taken_for_a_whole_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut receiver = StreamReceiver::start(directory.path(), Stdio::piped(), &[]);
    let mut output = receiver.child.stdout.take().unwrap();
    let mut sender = receiver.send(directory.path());
    sender.stdin.as_mut().unwrap().write_all(&pattern(1000)).unwrap();
    let mut received = [0; 1000];
    output.read_exact(&mut received).unwrap();
    sender.kill().unwrap();
    sender.wait().unwrap();
    let (code, line) = receiver.end();
    assert_eq!(code, Some(1), "{line}");
    assert!(line.contains("the stream is incomplete, it broke off after 1000 bytes"), "{line}");
}

#[test]
fn a_reader_that_ends_ends_both_commands_with_one_line() {
    let directory = tempfile::tempdir().unwrap();
    let mut receiver = StreamReceiver::start(directory.path(), Stdio::piped(), &[]);
    let mut output = receiver.child.stdout.take().unwrap();
    let mut sender = receiver.send(directory.path());
    let mut input = sender.stdin.take().unwrap();
    input.write_all(b"some").unwrap();
    output.read_exact(&mut [0; 4]).unwrap();
    drop(output);
    // The sender ends before its input does.
    let block = pattern(1 << 20);
    while input.write_all(&block).is_ok() {}
    let sent = sender.wait_with_output().unwrap();
    let text = "cannot write the stream: the program that reads it has ended";
    let errors = String::from_utf8(sent.stderr).unwrap();
    assert_eq!(errors, format!("error: the receiver says: {text}\n"));
    assert_eq!(sent.status.code(), Some(1));
    assert_eq!(receiver.end(), (Some(1), format!("error: {text}")));
}

#[test]
fn a_stream_takes_the_path_that_a_relay_helps_to_find() {
    // The direct path is given up soon, so a busy machine may be too late for some.
    let mut printed = Vec::new();
    let is_direct = (0..3).any(|_| {
        printed.push(sent_at_a_relay());
        printed.last().is_some_and(|it: &String| it.contains("by burst, path: direct"))
    });
    assert!(is_direct, "three times: {printed:?}");
}

/// Sends a stream at a relay. Returns what the sender prints.
fn sent_at_a_relay() -> String {
    let (_relay, directory, relay) = super::code::relay();
    let output = File::create(directory.path().join("out")).unwrap();
    let place = ["--via", relay.as_str()];
    let receiver = StreamReceiver::start_at(place, directory.path(), output.into(), &["--code"]);
    let mut sender = receiver.send(directory.path());
    let data = pattern(3_000_000);
    sender.stdin.take().unwrap().write_all(&data).unwrap();
    let sent = ended(sender);
    assert_eq!((sent.status.code(), receiver.end().0), (Some(0), Some(0)));
    assert!(fs::read(directory.path().join("out")).unwrap() == data);
    String::from_utf8(sent.stdout).unwrap()
}

#[test]
fn files_and_streams_are_told_apart() {
    let directory = tempfile::tempdir().unwrap();
    fs::create_dir(directory.path().join("d")).unwrap();
    fs::write(directory.path().join("a"), pattern(100_000)).unwrap();
    let output = File::create(directory.path().join("out")).unwrap();
    let mut receiver = StreamReceiver::start(directory.path(), output.into(), &[]);
    receiver.command[2] = "d".into();
    let sent = ended(receiver.send(directory.path()));
    let errors = String::from_utf8(sent.stderr).unwrap();
    assert!(errors.contains("it writes one stream to its standard output"), "{errors}");
    // A file is a stream, too.
    receiver.command[2] = "a".into();
    assert_eq!(ended(receiver.send(directory.path())).status.code(), Some(0));
    assert_eq!(receiver.end().0, Some(0));
    assert!(fs::read(directory.path().join("out")).unwrap() == pattern(100_000));
    // A receiver of files takes no stream.
    let files = super::Receiver::start(directory.path(), &[]);
    let mut words = vec!["transport", "send", "-", &files.address];
    words.extend(files.options.iter().map(String::as_str));
    let sent = crate::common::sunder(directory.path(), &words);
    let errors = String::from_utf8(sent.stderr).unwrap();
    assert_eq!(sent.status.code(), Some(1), "{errors}");
    assert!(errors.contains("to receive a stream, start it with --out -"), "{errors}");
}
