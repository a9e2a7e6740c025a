//! `cofferdam exec`: one command in a sandbox of its own, with this terminal's input and output, ended when this
//! process ends, and with an exit code that says what happened.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use clap::Args;
use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest, ExecStatus, RefusedCall};
use cofferdam_protocol::output::Stream;
use cofferdam_protocol::{Limits, NetworkPolicy};
use cofferdam_sandbox::SandboxError;
use cofferdam_sandbox::client::Client;
use cofferdam_sandbox::egress::{ConnectionEvent, ConnectionRecord};
use cofferdam_sandbox::local::{ConnectionLog, LocalConfig, LocalRuntime, SandboxSpec, Workspace};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;

use crate::language::{Engine, Language, Program};
use crate::text::say;
use crate::{exit_code, terminal};

/// One read of standard input.
const INPUT_BYTES: usize = 64 * 1024;

/// Run a command in a fresh sandbox
#[derive(Debug, Args)]
#[command(after_long_help = after_help(), after_help = "Try --help for limits and exit codes.")]
pub struct ExecArguments {
    /// Set a limit: cpu, memory, processes, files, workspace, tmp or time, as in memory=512MiB
    #[arg(long, short = 'l', value_name = "NAME=VALUE")]
    limit: Vec<String>,
    /// What it may reach: none, open, or names such as example.org, *.example.org, example.org:443, with commas
    #[arg(long, short = 'n', value_name = "POLICY", default_value = "none")]
    net: String,
    /// Append every connection that was tried, with its verdict, to this file as JSON lines
    #[arg(long, value_name = "FILE")]
    net_log: Option<PathBuf>,
    /// A directory of yours to work on, at /workspace; without it, an empty one in memory
    #[arg(long, short = 'w', value_name = "DIR")]
    workspace: Option<PathBuf>,
    /// Offer a directory of this machine read-only under its own name, such as a toolchain in /opt
    #[arg(long, value_name = "DIR")]
    read_only: Vec<PathBuf>,
    /// Where the command starts, in the sandbox
    #[arg(long, short = 'C', value_name = "DIR")]
    cwd: Option<String>,
    /// Set an environment variable inside; NAME alone takes its value from here
    #[arg(long, short = 'e', value_name = "NAME[=VALUE]")]
    env: Vec<String>,
    /// Run the command on a terminal
    #[arg(long, short = 't')]
    tty: bool,
    /// Run a source file: the first word after the options is the file, the rest its arguments
    #[arg(long, value_name = "LANGUAGE")]
    lang: Option<Language>,
    /// What runs JavaScript and TypeScript
    #[arg(long, value_name = "ENGINE", requires = "lang")]
    engine: Option<Engine>,
    /// The command and its arguments
    #[arg(trailing_var_arg = true, value_name = "COMMAND")]
    command: Vec<String>,
}

fn after_help() -> String {
    let defaults = Limits::default();
    let rows = cofferdam_protocol::limits::LIMITS
        .iter()
        .map(|limit| format!("  {:<10} {:<10} {}", limit.name, limit.unit.show(limit.value_in(&defaults)), limit.help));
    format!("Limits and their defaults:\n{}\n\n{}", rows.collect::<Vec<_>>().join("\n"), exit_code::help())
}

/// Something to say, and the code to end with.
pub struct Failure {
    pub message: String,
    pub code: u8,
}

impl Failure {
    pub fn new(code: u8, message: impl ToString) -> Self {
        Self { message: message.to_string(), code }
    }
}

impl From<SandboxError> for Failure {
    fn from(error: SandboxError) -> Self {
        Self::new(exit_code::of_error(&error), error)
    }
}

pub fn main(arguments: ExecArguments) -> ExitCode {
    // One thread: the work is in the sandbox, and starting threads would cost a good part of its start-up.
    let code = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => {
            let code = runtime.block_on(run(arguments));
            // A name that is still being resolved is nobody's concern any more.
            runtime.shutdown_background();
            code
        }
        Err(error) => Err(Failure::new(exit_code::FAILED, format!("the runtime could not be started: {error}"))),
    };
    let code = code.unwrap_or_else(|failure| {
        if !failure.message.is_empty() {
            say(&failure.message);
        }
        failure.code
    });
    let _ = io::stdout().flush();
    // Not by returning: a thread may be waiting for input that never comes.
    std::process::exit(code.into())
}

async fn run(arguments: ExecArguments) -> Result<u8, Failure> {
    let spec = sandbox_spec(&arguments)?;
    let env = arguments.env.iter().filter_map(|pair| match pair.split_once('=') {
        Some((name, value)) => Some((name.to_owned(), value.to_owned())),
        None => std::env::var(pair).ok().map(|value| (pair.clone(), value)),
    });
    let mut request = ExecRequest {
        argv: arguments.command.clone(),
        env: env.collect(),
        cwd: arguments.cwd.clone(),
        terminal: arguments.tty.then(terminal::size),
        stdin: !arguments.tty,
        timeout_ms: 0,
    };
    let mut program = None;
    if let Some(language) = arguments.lang {
        let loaded = Program::load(
            language,
            arguments.engine,
            &arguments.command,
            arguments.workspace.as_deref(),
            arguments.cwd.is_none(),
        )?;
        request.argv = loaded.argv.clone();
        program = Some(loaded);
    }
    request.validate().map_err(|error| Failure::new(exit_code::USAGE, error))?;

    let config = LocalConfig { read_only: arguments.read_only.clone(), ..LocalConfig::default() };
    let runtime = LocalRuntime::new(&config)?;
    if arguments.limit.iter().any(|limit| limit.trim_start().starts_with("cpu")) && !runtime.limits_cpu() {
        say("the cpu limit is not enforced here: there is no control group for it; run: cofferdam doctor");
    }
    let refused = Arc::new(Mutex::new(BTreeSet::new()));
    let log = connection_log(arguments.net_log.as_deref(), refused.clone())?;
    let sandbox = runtime.launch(&spec, Some(log)).await?;
    if let Some(program) = &program {
        program.install(sandbox.client()).await?;
    }
    let status = follow(sandbox.client(), &request, arguments.tty).await;
    let destroyed = sandbox.destroy().await;
    let status = status?;
    destroyed?;
    Ok(report(&status, &refused))
}

fn sandbox_spec(arguments: &ExecArguments) -> Result<SandboxSpec, Failure> {
    let mut limits = Limits::default();
    for limit in &arguments.limit {
        limits.set(limit).map_err(|error| Failure::new(exit_code::LIMIT_WRONG, error))?;
    }
    let network: NetworkPolicy =
        arguments.net.parse().map_err(|error| Failure::new(exit_code::NETWORK_WRONG, error))?;
    let workspace = arguments.workspace.clone().map_or(Workspace::Temporary, Workspace::Directory);
    Ok(SandboxSpec { workspace, limits, network })
}

/// Starts the command and moves everything between it and this terminal until it has ended.
async fn follow(client: &Client, request: &ExecRequest, tty: bool) -> Result<ExecStatus, Failure> {
    let id = ExecId::try_from("main".to_owned()).expect("it is a valid id");
    let raw = if tty && terminal::stdin_is_terminal() { terminal::RawMode::enter() } else { None };
    let mut stream = client.exec(&id, request, 0, false).await?;
    if request.stdin || tty {
        let (feeding, id) = (client.clone(), id.clone());
        let chunks = read_input(tty && !terminal::stdin_is_terminal());
        tokio::spawn(async move { drop(feeding.stdin(&id, chunks).await) });
    }
    tokio::spawn(pass_signals(client.clone(), id.clone(), tty));
    // Not through the standard library's stdout, which looks for line ends and holds back what follows them.
    let own = |descriptor: io::Result<OwnedFd>| {
        descriptor
            .map(File::from)
            .map_err(|error| Failure::new(exit_code::FAILED, format!("the output cannot be opened: {error}")))
    };
    let mut stdout = own(io::stdout().as_fd().try_clone_to_owned())?;
    let mut stderr = own(io::stderr().as_fd().try_clone_to_owned())?;
    let mut broken: Option<io::Error> = None;
    loop {
        let more = stream.next(|stream, data| {
            let written = match stream {
                _ if broken.is_some() => Ok(()),
                Stream::Stdout => stdout.write_all(data),
                Stream::Stderr => stderr.write_all(data),
            };
            broken = broken.take().or(written.err());
        });
        if !more.await? {
            break;
        }
        // What it prints reaches nobody: the command has nobody to work for.
        if broken.is_some() {
            client.kill(&id).await?;
        }
    }
    drop(raw);
    let status = stream.finish()?;
    match broken {
        None => Ok(status),
        // Whoever read it has seen enough, as with any command in a pipeline.
        Some(error) if error.kind() == io::ErrorKind::BrokenPipe => Err(Failure::new(exit_code::BROKEN_PIPE, "")),
        Some(error) => Err(Failure::new(
            exit_code::DISK_FULL,
            format!("the output could not be written: {error}; make room for it"),
        )),
    }
}

/// Standard input, read by a thread that is simply left behind at the end. A terminal inside has no other end of input
/// than the character for it.
pub fn read_input(end_with_character: bool) -> mpsc::Receiver<io::Result<Bytes>> {
    const END_OF_TRANSMISSION: &[u8] = b"\x04";
    let (sender, receiver) = mpsc::channel(4);
    std::thread::spawn(move || {
        let mut buffer = vec![0; INPUT_BYTES];
        while let Ok(length @ 1..) = io::stdin().read(&mut buffer) {
            if sender.blocking_send(Ok(Bytes::copy_from_slice(&buffer[..length]))).is_err() {
                return;
            }
        }
        if end_with_character {
            let _ = sender.blocking_send(Ok(Bytes::from_static(END_OF_TRANSMISSION)));
        }
    });
    receiver
}

/// Signals for this process are meant for the command. The second interrupt ends it without asking.
async fn pass_signals(client: Client, id: ExecId, tty: bool) -> io::Result<()> {
    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut quit = signal(SignalKind::quit())?;
    let mut resize = signal(SignalKind::window_change())?;
    let mut interrupted = false;
    loop {
        let number = tokio::select! {
            _ = interrupt.recv() => SignalKind::interrupt(),
            _ = terminate.recv() => SignalKind::terminate(),
            _ = hangup.recv() => SignalKind::hangup(),
            _ = quit.recv() => SignalKind::quit(),
            _ = resize.recv() => {
                if tty {
                    let _ = client.resize(&id, terminal::size()).await;
                }
                continue;
            }
        };
        if interrupted && number == SignalKind::interrupt() {
            let _ = client.kill(&id).await;
        }
        interrupted |= number == SignalKind::interrupt();
        let _ = client.signal(&id, number.as_raw_value()).await;
    }
}

/// Writes connections to a file where one is named, and remembers what was refused.
fn connection_log(
    file: Option<&std::path::Path>,
    refused: Arc<Mutex<BTreeSet<String>>>,
) -> Result<ConnectionLog, Failure> {
    let open = |path: &std::path::Path| {
        let file = std::fs::File::options().create(true).append(true).open(path);
        file.map_err(|error| Failure::new(exit_code::USAGE, format!("--net-log {}: {error}", path.display())))
    };
    let file = file.map(open).transpose()?.map(Mutex::new);
    Ok(Arc::new(move |record: &ConnectionRecord| {
        if let ConnectionEvent::Refused { reason, .. } = &record.event
            && let Ok(mut refused) = refused.lock()
            && refused.len() < 10
        {
            refused.insert(format!("{}:{}: {reason}", record.host, record.port));
        }
        if let Some(Ok(mut file)) = file.as_ref().map(Mutex::lock)
            && let Ok(mut line) = serde_json::to_vec(record)
        {
            line.push(b'\n');
            let _ = file.write_all(&line);
        }
    }))
}

/// Says on standard error what the exit code alone would not.
fn report(status: &ExecStatus, refused: &Mutex<BTreeSet<String>>) -> u8 {
    let Some(outcome) = &status.outcome else { return exit_code::LOST };
    let code = exit_code::of_outcome(outcome);
    match outcome {
        ExecOutcome::Exited { .. } => {}
        ExecOutcome::Signalled { signal: exit_code::SIGSYS } => say(
            "killed: the program uses a system call interface that the sandbox forbids (32-bit); use a 64-bit build of it",
        ),
        ExecOutcome::Signalled { signal } => say(&format!("ended by signal {signal}")),
        outcome => say(&format!("{outcome}{}", remedy(outcome))),
    }
    if code == 0 {
        return code;
    }
    if status.process_limit_hits > 0 {
        say(&format!(
            "the process limit was reached {} times while it ran; raise it with --limit processes=N",
            status.process_limit_hits
        ));
    }
    if !status.refused_calls.is_empty() {
        let calls: Vec<String> =
            status.refused_calls.iter().map(|RefusedCall { name, times }| format!("{name} ({times}×)")).collect();
        say(&format!(
            "the sandbox refused system calls that it made: {}; what is forbidden and why: docs/security.md",
            calls.join(", ")
        ));
    }
    for host in refused.lock().map(|refused| refused.clone()).unwrap_or_default() {
        say(&format!("connection refused by --net: {host}"));
    }
    code
}

fn remedy(outcome: &ExecOutcome) -> &'static str {
    use cofferdam_protocol::exec::LimitHit;
    match outcome {
        ExecOutcome::Killed { by: LimitHit::Memory { .. } } => "; raise it with --limit memory=SIZE",
        ExecOutcome::Killed { by: LimitHit::Time { .. } } => "; raise it with --limit time=DURATION",
        ExecOutcome::Killed { by: LimitHit::Workspace { .. } } => "; raise it with --limit workspace=SIZE",
        _ => "",
    }
}
