//! The one obvious way to get a sandbox in a test, and to run a line of shell in it.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest};
use cofferdam_sandbox::client::Finished;
use cofferdam_sandbox::local::{LocalConfig, LocalRuntime, Sandbox, SandboxSpec};

pub fn runtime() -> &'static LocalRuntime {
    static RUNTIME: OnceLock<LocalRuntime> = OnceLock::new();
    RUNTIME.get_or_init(|| LocalRuntime::new(&LocalConfig::default()).unwrap())
}

pub async fn sandbox() -> Sandbox {
    with(SandboxSpec::default()).await
}

pub async fn with(spec: SandboxSpec) -> Sandbox {
    runtime().launch(&spec, None).await.unwrap()
}

pub fn new_id() -> ExecId {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    ExecId::try_from(format!("test-{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

pub fn shell(script: &str) -> ExecRequest {
    ExecRequest { argv: ["sh", "-c", script].map(str::to_owned).to_vec(), ..ExecRequest::default() }
}

pub async fn sh(sandbox: &Sandbox, script: &str) -> Finished {
    sandbox.client().run(&new_id(), &shell(script)).await.unwrap()
}

pub trait Texts {
    fn stdout_text(&self) -> String;
    fn stderr_text(&self) -> String;
    fn exit_code(&self) -> Option<i32>;
}

impl Texts for Finished {
    fn stdout_text(&self) -> String {
        String::from_utf8(self.stdout.clone()).unwrap()
    }

    fn stderr_text(&self) -> String {
        String::from_utf8(self.stderr.clone()).unwrap()
    }

    fn exit_code(&self) -> Option<i32> {
        match self.status.outcome {
            Some(ExecOutcome::Exited { code }) => Some(code),
            _ => None,
        }
    }
}

/// Asks until there is an answer. Tests wait for conditions; this only bounds how long a broken one waits.
pub async fn until<T>(mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..2_000 {
        if let Some(value) = condition().await {
            return value;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the condition did not come true within 20 s");
}
