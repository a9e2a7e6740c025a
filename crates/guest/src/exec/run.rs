//! One command from start to end: its pipes or terminal, the task that moves its output into the log, the task that
//! waits for it, its time limit, and what is said about how it ended.

use std::cell::{Cell, RefCell};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use cofferdam_linux::channel;
use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest, ExecStatus, LimitHit, StartError, TerminalSize};
use cofferdam_protocol::launch::{FromSpawner, Spawn, ToSpawner};
use cofferdam_protocol::output::{HEADER_BYTES, Stream, stream_header};
use rustix::pipe::{PipeFlags, fcntl_setpipe_size, pipe_with};
use tokio::io::unix::AsyncFd;
use tokio::net::unix::pipe;
use tokio::sync::Notify;

use super::Shared;
use super::buffers;
use super::output::OutputLog;
use super::refusals::Snapshot;
use super::tree;
use crate::launch::receive_now;
use crate::sys::{self, ChildEnd};

/// Room in the pipe: a command that prints fast is switched to less often.
const PIPE_BYTES: usize = 256 * 1024;
/// Reads smaller than this are copied into a chunk of their own size instead of keeping the whole buffer.
const SMALL_READ_BYTES: usize = 64 * 1024;
/// A command that prints this much...
const BULK_BYTES: usize = 256 * 1024;
/// ...in this time prints in bulk: ...
const BULK_WINDOW: Duration = Duration::from_millis(10);
/// ...its pipe is given this time to fill, because waking for each of its small writes costs more than moving them.
const BULK_NAP: Duration = Duration::from_micros(50);
/// How long a reader may take before output goes to the spool file instead of making the command wait.
const READER_PATIENCE: Duration = Duration::from_millis(20);

pub struct Exec {
    pub id: ExecId,
    pub request: ExecRequest,
    pub log: OutputLog,
    shared: Rc<Shared>,
    outcome: RefCell<Option<ExecOutcome>>,
    /// A limit that the guest enforces itself, noted before the processes are killed for it.
    limit_hit: RefCell<Option<LimitHit>>,
    process: RefCell<Option<Process>>,
    started: Notify,
    finished: Notify,
    stdin: RefCell<Stdin>,
    refusals_before: Snapshot,
    refused: RefCell<Vec<cofferdam_protocol::exec::RefusedCall>>,
    memory_kills_before: u64,
    process_limit_hits_before: u64,
    process_limit_hits: Cell<u64>,
}

struct Process {
    pidfd: Rc<AsyncFd<OwnedFd>>,
    tag: u64,
    terminal: Option<Rc<AsyncFd<OwnedFd>>>,
}

enum Stdin {
    /// No input was asked for, or it has been closed.
    Closed,
    Pipe(pipe::Sender),
    Terminal(Rc<AsyncFd<OwnedFd>>),
    Starting,
}

/// Where input is written; given out to one writer at a time.
pub enum StdinWriter {
    Pipe(pipe::Sender),
    Terminal(Rc<AsyncFd<OwnedFd>>),
}

impl Exec {
    pub fn start(shared: Rc<Shared>, id: ExecId, request: ExecRequest) -> io::Result<Rc<Self>> {
        let exec = Rc::new(Self {
            log: OutputLog::new(shared.inside.spool_directory.clone()),
            outcome: RefCell::default(),
            limit_hit: RefCell::default(),
            process: RefCell::default(),
            started: Notify::new(),
            finished: Notify::new(),
            stdin: RefCell::new(if request.stdin || request.terminal.is_some() {
                Stdin::Starting
            } else {
                Stdin::Closed
            }),
            refusals_before: shared.refusals.snapshot(),
            refused: RefCell::default(),
            memory_kills_before: shared.inside.cgroup.memory_kills(),
            process_limit_hits_before: shared.inside.cgroup.process_limit_hits(),
            process_limit_hits: Cell::default(),
            id,
            request,
            shared,
        });
        let running = exec.clone();
        tokio::task::spawn_local(async move { running.run().await });
        Ok(exec)
    }

    async fn run(self: Rc<Self>) {
        let dead = self.shared.dead.borrow().clone();
        if let Some(reason) = dead {
            return self.finish(ExecOutcome::Lost { reason });
        }
        let outputs = match self.spawn().await {
            Ok(outputs) => outputs,
            Err(error) => return self.finish(ExecOutcome::NotStarted { error }),
        };
        super::watch::begin(&self.shared, &self);
        let deadline = self.watch_time();
        self.move_output(outputs).await;
        if let Some(deadline) = deadline {
            deadline.abort();
        }
    }

    /// Asks the spawner, and takes over what comes back.
    async fn spawn(&self) -> Result<Outputs, StartError> {
        let wrong =
            |step: &str, error: io::Error| StartError::Other { step: step.to_owned(), detail: error.to_string() };
        let (spawn, pipes) = self.prepare().map_err(|error| wrong("making pipes", error))?;
        let spawner = &self.shared.inside.spawner;
        let turn = self.shared.spawner_turn.lock().await;
        let borrowed: Vec<_> = pipes.iter().flat_map(|pipes| pipes.theirs.iter().map(AsFd::as_fd)).collect();
        channel::send(spawner.get_ref(), &ToSpawner::Spawn(spawn), &borrowed)
            .map_err(|error| wrong("asking the spawner", error))?;
        let answered = spawner.async_io(tokio::io::Interest::READABLE, |socket| receive_now(socket));
        let (answer, descriptors) = tokio::select! {
            answered = answered => answered.map_err(|error| wrong("hearing from the spawner", error))?,
            never = tree::keep_newborns_going(&self.shared.inside.processes) => match never {},
        };
        drop(turn);
        let mut descriptors = descriptors.into_iter();
        let tag = match answer {
            FromSpawner::Spawned { tag } => tag,
            FromSpawner::NotSpawned(error) => {
                // The child that got as far as failing is still ours to collect.
                if let Some(pidfd) = descriptors.next().and_then(|pidfd| sys::watch(pidfd).ok()) {
                    tokio::task::spawn_local(async move {
                        let _ = wait(&pidfd).await;
                    });
                }
                return Err(error);
            }
            _ => return Err(wrong("hearing from the spawner", io::ErrorKind::InvalidData.into())),
        };
        let watch = |descriptor: Option<OwnedFd>| descriptor.map(sys::watch).transpose();
        let pidfd = watch(descriptors.next()).map_err(|error| wrong("watching the process", error))?;
        let terminal = descriptors.next().map(|terminal| {
            rustix::io::ioctl_fionbio(&terminal, true)?;
            sys::watch(terminal).map(Rc::new)
        });
        let terminal = terminal.transpose().map_err(|error| wrong("watching the terminal", error))?;
        let Some(pidfd) = pidfd.map(Rc::new) else {
            return Err(wrong("hearing from the spawner", io::ErrorKind::InvalidData.into()));
        };
        *self.process.borrow_mut() = Some(Process { pidfd: pidfd.clone(), tag, terminal: terminal.clone() });
        let outputs = match (pipes, terminal) {
            (Some(pipes), _) => {
                *self.stdin.borrow_mut() = pipes.stdin.map_or(Stdin::Closed, Stdin::Pipe);
                Outputs {
                    pidfd,
                    pipes: vec![(Stream::Stdout, pipes.stdout), (Stream::Stderr, pipes.stderr)],
                    terminal: None,
                }
            }
            (None, terminal) => {
                *self.stdin.borrow_mut() = terminal.clone().map_or(Stdin::Closed, Stdin::Terminal);
                Outputs { pidfd, pipes: Vec::new(), terminal }
            }
        };
        self.started.notify_waiters();
        Ok(outputs)
    }

    fn prepare(&self) -> io::Result<(Spawn, Option<Pipes>)> {
        let mut environment = self.shared.inside.environment.clone();
        if self.request.terminal.is_some() {
            environment.insert("TERM".to_owned(), "xterm-256color".to_owned());
        }
        environment.extend(self.request.env.clone());
        let path = environment.get("PATH").cloned().unwrap_or_default();
        let cwd = match self.request.cwd.as_deref() {
            None | Some("") => "/workspace".to_owned(),
            Some(absolute) if absolute.starts_with('/') => absolute.to_owned(),
            Some(relative) => format!("/workspace/{relative}"),
        };
        let spawn = Spawn {
            argv: self.request.argv.clone(),
            env: environment.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
            path,
            cwd,
            terminal: self.request.terminal,
        };
        if self.request.terminal.is_some() {
            return Ok((spawn, None));
        }
        Ok((spawn, Some(Pipes::new(self.request.stdin)?)))
    }

    fn watch_time(self: &Rc<Self>) -> Option<tokio::task::JoinHandle<()>> {
        let limits = &self.shared.inside.limits;
        let limit_ms = [self.request.timeout_ms, limits.time_ms].into_iter().filter(|ms| *ms > 0).min()?;
        let exec = self.clone();
        Some(tokio::task::spawn_local(async move {
            tokio::time::sleep(Duration::from_millis(limit_ms)).await;
            exec.kill_for(LimitHit::Time { limit_ms }).await;
        }))
    }

    /// Ends all processes of the command, and remembers why.
    pub async fn kill_for(&self, hit: LimitHit) {
        if self.outcome.borrow().is_none() {
            self.limit_hit.borrow_mut().get_or_insert(hit);
            self.kill().await;
        }
    }

    pub async fn kill(&self) {
        if self.is_running() {
            self.end_tree().await;
        }
    }

    async fn end_tree(&self) {
        let tag = self.process.borrow().as_ref().map(|process| process.tag);
        if let Some(tag) = tag {
            tree::end(&self.shared.inside.processes, tag, &self.shared.spawner_turn).await;
        }
    }

    /// Moves output into the log until the command has ended *and* all that it had written is there. Whatever its
    /// background processes write later is read and dropped, so that they neither block nor break.
    async fn move_output(self: &Rc<Self>, outputs: Outputs) {
        let pidfd = outputs.pidfd.clone();
        let mut sources: Vec<Source> = outputs.into_sources();
        let mut buffer = buffers::take();
        let (mut pace, mut patient) = (Pace::new(), true);
        let ended = loop {
            tokio::select! {
                biased;
                ready = next_ready(&sources), if !sources.is_empty() => {
                    if patient && self.log.is_crowded() {
                        // Somebody is reading: to wait for him is cheaper than to write a file and read it back.
                        patient = tokio::time::timeout(READER_PATIENCE, self.log.shrank.notified()).await.is_ok();
                    } else if self.log.has_room() {
                        patient |= !self.log.is_crowded();
                        let before = self.log.end();
                        self.take_from(&mut sources, ready, &mut buffer);
                        if !self.is_running() {
                            // Its output could not be kept.
                            self.end_tree().await;
                            let _ = wait(&pidfd).await;
                            return;
                        }
                        pace.keep((self.log.end() - before) as usize).await;
                    } else {
                        tokio::select! {
                            () = self.log.shrank.notified() => {}
                            ended = wait(&pidfd) => break ended,
                        }
                    }
                }
                ended = wait(&pidfd) => break ended,
                () = self.finished.notified() => return, // Lost.
            }
        };
        // What the command wrote before it ended is in the pipes now, which hold little. It is taken whether or not
        // somebody reads: a command that has ended must not seem to run on for want of a reader.
        let mut index = 0;
        while index < sources.len() && self.log.has_room_for_the_rest() {
            let before = sources.len();
            if !self.take_from(&mut sources, index, &mut buffer) && sources.len() == before {
                index += 1;
            }
        }
        self.finish(self.judge(ended));
        drop(buffer);
        buffers::release();
        tokio::task::spawn_local(async move { discard(sources).await });
    }

    /// One read. False when there was nothing; a source that has ended is removed.
    fn take_from(&self, sources: &mut Vec<Source>, index: usize, buffer: &mut Box<[u8]>) -> bool {
        match sources[index].try_read(&mut buffer[HEADER_BYTES..]) {
            Ok(0) => {
                sources.remove(index);
                false
            }
            Ok(length) => {
                buffer[..HEADER_BYTES].copy_from_slice(&stream_header(sources[index].stream, length));
                let frame = if length < SMALL_READ_BYTES {
                    Bytes::copy_from_slice(&buffer[..HEADER_BYTES + length])
                } else {
                    buffers::freeze(std::mem::replace(buffer, buffers::take()), HEADER_BYTES + length)
                };
                if let Err(error) = self.log.append(frame) {
                    // The spool's disk is full: losing output in silence would be worse than ending the command.
                    *self.limit_hit.borrow_mut() = None;
                    self.finish(ExecOutcome::Lost { reason: format!("its output could not be kept: {error}; free space for temporary files, or point TMPDIR elsewhere") });
                    sources.clear();
                    return false;
                }
                true
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => false,
            // A terminal whose other side has closed answers EIO.
            Err(_) => {
                sources.remove(index);
                false
            }
        }
    }

    fn judge(&self, ended: io::Result<ChildEnd>) -> ExecOutcome {
        let cgroup = &self.shared.inside.cgroup;
        self.process_limit_hits.set(cgroup.process_limit_hits().saturating_sub(self.process_limit_hits_before));
        if let Some(by) = self.limit_hit.borrow().clone() {
            return ExecOutcome::Killed { by };
        }
        let failed = !matches!(ended, Ok(ChildEnd::Exited(0)));
        if failed && cgroup.memory_kills() > self.memory_kills_before {
            return ExecOutcome::Killed {
                by: LimitHit::Memory { limit_bytes: self.shared.inside.limits.memory_bytes },
            };
        }
        match ended {
            Ok(ChildEnd::Exited(code)) => ExecOutcome::Exited { code },
            Ok(ChildEnd::Signalled(signal)) => ExecOutcome::Signalled { signal },
            Err(error) => ExecOutcome::Lost { reason: format!("it could not be waited for: {error}") },
        }
    }

    fn finish(&self, outcome: ExecOutcome) {
        if self.outcome.borrow().is_some() {
            return;
        }
        *self.refused.borrow_mut() = self.shared.refusals.since(&self.refusals_before);
        *self.stdin.borrow_mut() = Stdin::Closed;
        // The result may be kept for long; the terminal need not be.
        if let Some(process) = &mut *self.process.borrow_mut() {
            process.terminal = None;
        }
        *self.outcome.borrow_mut() = Some(outcome);
        self.log.finish();
        self.started.notify_waiters();
        self.finished.notify_waiters();
    }

    pub fn lost(&self, reason: &str) {
        self.finish(ExecOutcome::Lost { reason: reason.to_owned() });
    }

    pub fn status(&self) -> ExecStatus {
        ExecStatus {
            id: self.id.clone(),
            outcome: self.outcome.borrow().clone(),
            output_end: self.log.end(),
            refused_calls: self.refused.borrow().clone(),
            process_limit_hits: self.process_limit_hits.get(),
        }
    }

    pub fn is_running(&self) -> bool {
        self.outcome.borrow().is_none()
    }

    pub async fn ended(&self) {
        let finished = self.finished.notified();
        if self.is_running() {
            finished.await;
        }
    }

    pub fn signal(&self, signal: i32) -> io::Result<()> {
        match (&*self.process.borrow(), self.is_running()) {
            (Some(process), true) if (1..=64).contains(&signal) => {
                sys::send_signal(process.pidfd.get_ref().as_fd(), signal)
            }
            (_, false) => Err(io::Error::other("the command has ended")),
            (None, true) => Err(io::Error::other("the command has not started yet")),
            _ => Err(io::Error::other(format!("{signal} is not a signal; they are 1 to 64"))),
        }
    }

    pub fn resize(&self, size: TerminalSize) -> io::Result<()> {
        let process = self.process.borrow();
        let Some(terminal) = process.as_ref().and_then(|process| process.terminal.as_ref()) else {
            return Err(io::Error::other("the command has no terminal"));
        };
        let window = rustix::termios::Winsize { ws_row: size.rows, ws_col: size.columns, ws_xpixel: 0, ws_ypixel: 0 };
        Ok(rustix::termios::tcsetwinsize(terminal.get_ref(), window)?)
    }

    pub async fn take_stdin(&self) -> Option<StdinWriter> {
        loop {
            let started = self.started.notified();
            let stdin = self.stdin.replace(Stdin::Closed);
            match stdin {
                Stdin::Closed => return None,
                Stdin::Pipe(pipe) => return Some(StdinWriter::Pipe(pipe)),
                Stdin::Terminal(terminal) => {
                    *self.stdin.borrow_mut() = Stdin::Terminal(terminal.clone());
                    return Some(StdinWriter::Terminal(terminal));
                }
                Stdin::Starting => *self.stdin.borrow_mut() = Stdin::Starting,
            }
            started.await;
        }
    }
}

impl StdinWriter {
    pub async fn write_all(&mut self, mut data: &[u8]) -> io::Result<()> {
        match self {
            Self::Pipe(pipe) => tokio::io::AsyncWriteExt::write_all(pipe, data).await,
            Self::Terminal(terminal) => {
                while !data.is_empty() {
                    let write = |fd: &OwnedFd| Ok(rustix::io::write(fd, data)?);
                    let written = terminal.async_io(tokio::io::Interest::WRITABLE, write).await?;
                    data = &data[written..];
                }
                Ok(())
            }
        }
    }
}

struct Pipes {
    stdin: Option<pipe::Sender>,
    stdout: pipe::Receiver,
    stderr: pipe::Receiver,
    theirs: [OwnedFd; 3],
}

impl Pipes {
    fn new(with_stdin: bool) -> io::Result<Self> {
        let output = || -> io::Result<(pipe::Receiver, OwnedFd)> {
            let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
            let _ = fcntl_setpipe_size(&reading, PIPE_BYTES);
            rustix::io::ioctl_fionbio(&reading, true)?;
            Ok((pipe::Receiver::from_owned_fd(reading)?, writing))
        };
        let (stdout, their_stdout) = output()?;
        let (stderr, their_stderr) = output()?;
        let (stdin, their_stdin) = if with_stdin {
            let (reading, writing) = pipe_with(PipeFlags::CLOEXEC)?;
            rustix::io::ioctl_fionbio(&writing, true)?;
            (Some(pipe::Sender::from_owned_fd(writing)?), reading)
        } else {
            let flags = rustix::fs::OFlags::RDONLY | rustix::fs::OFlags::CLOEXEC;
            (None, rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty())?)
        };
        Ok(Self { stdin, stdout, stderr, theirs: [their_stdin, their_stdout, their_stderr] })
    }
}

struct Outputs {
    pidfd: Rc<AsyncFd<OwnedFd>>,
    pipes: Vec<(Stream, pipe::Receiver)>,
    terminal: Option<Rc<AsyncFd<OwnedFd>>>,
}

impl Outputs {
    fn into_sources(self) -> Vec<Source> {
        let pipes = self.pipes.into_iter().map(|(stream, pipe)| Source { stream, end: End::Pipe(pipe) });
        let terminal = self.terminal.map(|terminal| Source { stream: Stream::Stdout, end: End::Terminal(terminal) });
        pipes.chain(terminal).collect()
    }
}

struct Source {
    stream: Stream,
    end: End,
}

enum End {
    Pipe(pipe::Receiver),
    Terminal(Rc<AsyncFd<OwnedFd>>),
}

impl Source {
    fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match &self.end {
            End::Pipe(pipe) => pipe.try_read(buffer),
            End::Terminal(terminal) => {
                terminal.try_io(tokio::io::Interest::READABLE, |fd| Ok(rustix::io::read(fd, buffer)?))
            }
        }
    }

    fn poll_ready(&self, context: &mut std::task::Context<'_>) -> bool {
        match &self.end {
            End::Pipe(pipe) => pipe.poll_read_ready(context).is_ready(),
            End::Terminal(terminal) => terminal.poll_read_ready(context).is_ready(),
        }
    }
}

/// Notices output in bulk, and lets it collect.
struct Pace {
    since: Instant,
    bytes: usize,
    bulk: bool,
}

impl Pace {
    fn new() -> Self {
        Self { since: Instant::now(), bytes: 0, bulk: false }
    }

    /// After each read.
    async fn keep(&mut self, length: usize) {
        self.bytes += length;
        if self.since.elapsed() >= BULK_WINDOW {
            *self = Self { bulk: self.bytes >= BULK_BYTES, ..Self::new() };
        }
        if self.bulk && length < PIPE_BYTES / 2 {
            // First what was read goes on its way. The nap is of the whole guest: timers of its runtime are twenty
            // times as coarse, and nobody notices so little.
            tokio::task::yield_now().await;
            std::thread::sleep(BULK_NAP);
        }
    }
}

/// The index of a source that can be read.
async fn next_ready(sources: &[Source]) -> usize {
    std::future::poll_fn(|context| match sources.iter().position(|source| source.poll_ready(context)) {
        Some(index) => std::task::Poll::Ready(index),
        None => std::task::Poll::Pending,
    })
    .await
}

/// Keeps the pipes of background processes flowing.
async fn discard(mut sources: Vec<Source>) {
    let mut buffer = vec![0; SMALL_READ_BYTES];
    while !sources.is_empty() {
        let index = next_ready(&sources).await;
        match sources[index].try_read(&mut buffer) {
            Ok(length) if length > 0 => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            _ => drop(sources.remove(index)),
        }
    }
}

async fn wait(pidfd: &AsyncFd<OwnedFd>) -> io::Result<ChildEnd> {
    loop {
        let mut ready = pidfd.readable().await?;
        match sys::wait_for(pidfd.get_ref())? {
            Some(end) => return Ok(end),
            None => ready.clear_ready(),
        }
    }
}
