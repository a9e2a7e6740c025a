//! Where the attacks of one category are played: a sandbox with the attack program in it, a workspace that can be
//! looked at from outside, and the facts of the host. Starts acts inside and reads their one line.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use cofferdam_protocol::NetworkPolicy;
use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest, TerminalSize};
use cofferdam_sandbox::client::{Client, Finished, RequestBody, WriteFile};
use cofferdam_sandbox::egress::{ConnectionEvent, ConnectionRecord};
use cofferdam_sandbox::local::{LocalRuntime, Sandbox, SandboxSpec, Workspace};
use tempfile::TempDir;

use crate::attack::Finding;
use crate::facts::{Facts, find_set_id, unique};

static PROGRAM: &[u8] = include_bytes!(env!("COFFERDAM_ATTACKER_PROGRAM"));

/// The longest that one act may take, as the guest counts it, and the longest that the guest is waited for.
const ACT_TIMEOUT: Duration = Duration::from_secs(20);
const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

pub(crate) struct Stage<'a> {
    pub(crate) runtime: &'a LocalRuntime,
    pub(crate) facts: Facts,
    pub(crate) workspace: TempDir,
    programs: TempDir,
    sandbox: Option<Sandbox>,
    connections: Arc<Mutex<Vec<ConnectionRecord>>>,
}

impl<'a> Stage<'a> {
    pub(crate) async fn new(runtime: &'a LocalRuntime) -> Result<Self, String> {
        let wrong = |error: std::io::Error| format!("setting the stage: {error}");
        let programs = tempfile::tempdir().map_err(wrong)?;
        let program = programs.path().join("attacker");
        fs::write(&program, PROGRAM).map_err(wrong)?;
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).map_err(wrong)?;
        let facts = Facts::new(&program).map_err(wrong)?;
        let workspace = tempfile::tempdir().map_err(wrong)?;
        let mut stage = Self { runtime, facts, workspace, programs, sandbox: None, connections: Arc::default() };
        stage.renew().await?;
        Ok(stage)
    }

    /// The attack program, outside.
    pub(crate) fn program(&self) -> PathBuf {
        self.programs.path().join("attacker")
    }

    /// The sandbox that most acts of a category share. It has a directory of the host's for its workspace, and the
    /// proxy with the most generous policy there is.
    pub(crate) fn sandbox(&self) -> Result<&Sandbox, String> {
        self.sandbox.as_ref().ok_or_else(|| "there is no sandbox".to_owned())
    }

    /// A new one, for the first act and after one that has worn the last one out.
    pub(crate) async fn renew(&mut self) -> Result<(), String> {
        self.end().await;
        let spec = SandboxSpec {
            workspace: Workspace::Directory(self.workspace.path().to_owned()),
            network: NetworkPolicy::Open,
            ..SandboxSpec::default()
        };
        self.sandbox = Some(self.launch(&spec).await?);
        Ok(())
    }

    pub(crate) async fn end(&mut self) {
        if let Some(sandbox) = self.sandbox.take() {
            let _ = sandbox.destroy().await;
        }
    }

    /// Another sandbox, with the attack program in it.
    pub(crate) async fn launch(&self, spec: &SandboxSpec) -> Result<Sandbox, String> {
        let connections = self.connections.clone();
        let log = move |record: &ConnectionRecord| {
            if let Ok(mut all) = connections.lock() {
                all.push(record.clone());
            }
        };
        let sandbox = self.runtime.launch(spec, Some(Arc::new(log))).await.map_err(|error| error.to_string())?;
        let options = WriteFile { mode: Some(0o755), ..WriteFile::default() };
        let body = RequestBody::Bytes(Some(Bytes::from_static(PROGRAM)));
        sandbox.client().write_file(b"attacker", body, options).await.map_err(|error| error.to_string())?;
        Ok(sandbox)
    }

    /// One act to its end.
    pub(crate) async fn act(&self, client: &Client, request: &ExecRequest) -> Result<Finished, String> {
        let id = new_id();
        let running = client.run(&id, request);
        match tokio::time::timeout(ANSWER_TIMEOUT, running).await {
            Ok(finished) => finished.map_err(|error| error.to_string()),
            Err(_) => Err("the guest did not answer".to_owned()),
        }
    }

    /// One act, judged by its line, and then by everything that can be seen from outside.
    pub(crate) async fn judge(&self, sandbox: &Sandbox, request: &ExecRequest) -> Finding {
        let finished = self.act(sandbox.client(), request).await?;
        let said = line(&finished);
        self.look_around(sandbox, &[finished.stdout, finished.stderr].concat()).await?;
        said
    }

    /// Nothing of the host has changed, nothing was connected to, and the sandbox still does as it is told.
    pub(crate) async fn look_around(&self, sandbox: &Sandbox, output: &[u8]) -> Result<(), String> {
        self.facts.check(output)?;
        if let Some(path) = find_set_id(self.workspace.path()) {
            let _ = fs::set_permissions(&path, fs::Permissions::from_mode(0o600));
            return Err(format!("on the host, {} has a set-uid or set-gid bit", path.display()));
        }
        let connected = |record: &&ConnectionRecord| !matches!(record.event, ConnectionEvent::Refused { .. });
        if let Some(record) = self.connections.lock().map_err(|_| "the log broke")?.iter().find(connected) {
            return Err(format!("the proxy did not refuse {}:{}", record.host, record.port));
        }
        self.still_works(sandbox).await
    }

    pub(crate) async fn still_works(&self, sandbox: &Sandbox) -> Result<(), String> {
        let finished = self
            .act(sandbox.client(), &self.request(&["nothing"]))
            .await
            .map_err(|error| format!("afterwards the sandbox was no longer usable: {error}"))?;
        line(&finished).map(drop).map_err(|error| format!("afterwards no command could be run: {error}"))
    }

    /// `./attacker` with these arguments, facts filled in.
    pub(crate) fn request(&self, arguments: &[&str]) -> ExecRequest {
        let filled = arguments.iter().map(|argument| self.facts.fill_in(argument));
        ExecRequest {
            argv: std::iter::once("./attacker".to_owned()).chain(filled).collect(),
            timeout_ms: ACT_TIMEOUT.as_millis() as u64,
            ..ExecRequest::default()
        }
    }

    pub(crate) fn terminal_request(&self, arguments: &[&str]) -> ExecRequest {
        ExecRequest { terminal: Some(TerminalSize { rows: 24, columns: 80 }), ..self.request(arguments) }
    }
}

pub(crate) fn new_id() -> ExecId {
    ExecId::try_from(format!("escape-{}", unique())).expect("digits and letters are an id")
}

/// What an act said of itself. Silence is not a good sign.
pub(crate) fn line(finished: &Finished) -> Finding {
    let text = String::from_utf8_lossy(&finished.stdout);
    for line in text.lines() {
        if let Some(why) = line.strip_prefix("HELD: ") {
            return Ok(why.to_owned());
        }
        if let Some(what) = line.strip_prefix("BROKEN: ") {
            return Err(what.to_owned());
        }
    }
    let outcome = finished.status.outcome.as_ref().map_or("still running".to_owned(), ExecOutcome::to_string);
    Err(format!("the act said nothing; {outcome}; {}", String::from_utf8_lossy(&finished.stderr).trim()))
}
