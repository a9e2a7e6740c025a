//! What a step runs in the sandbox. The same step gives the same request: a server that takes a job over finds the
//! running command by asking for it again. TypeScript that changes the files it imports is the exception; it counts as
//! lost then.

use std::io::Read;
use std::time::Duration;

use bytes::Bytes;
use cofferdam_linux::files::{RelativePath, Workspace};
use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest};
use cofferdam_protocol::job::{JobSpec, Step, Tool};
use cofferdam_sandbox::SandboxError;
use cofferdam_sandbox::client::{Client, RequestBody, WriteFile};
use cofferdam_typescript::{ModuleKind, inline, preload, tree};
use tokio::sync::mpsc;

/// The source is as untrusted as what it does: a file made to keep the parser busy is given up on.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);
/// Source files larger than this are data.
const SOURCE_MAX_BYTES: u64 = 4 << 20;

/// A command, and what has to lie in the sandbox before it starts.
#[derive(Debug)]
pub struct Program {
    pub request: ExecRequest,
    files: Option<TypeScriptFiles>,
}

/// TypeScript that imports other files of the workspace: node is given the compiled ones by a script, and wants the
/// step's own file to exist.
#[derive(Debug)]
struct TypeScriptFiles {
    name: String,
    source: String,
    preload_path: String,
    preload: String,
}

impl Program {
    /// `None` for tools that run no command. An error is the step's, in a sentence.
    pub async fn new(spec: &JobSpec, number: u32, step: &Step, workspace: &Workspace) -> Result<Option<Self>, String> {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let mut files = None;
        let argv = match &step.tool {
            Tool::Shell { command } => words(&["sh", "-c", command]),
            Tool::Bash { command } => words(&["bash", "-c", command]),
            Tool::Python { code } => words(&["python3", "-c", code]),
            Tool::Javascript { code } => {
                // What does not parse is left to node, whose message is the better one.
                let kind = cofferdam_typescript::module_kind(code, "step.ts").unwrap_or(ModuleKind::CommonJs);
                evaluate(code, kind)
            }
            Tool::Typescript { code } => {
                let name = format!(".cofferdam-step-{number}.ts");
                let compiled = compile(workspace, name.clone(), code.clone()).await?;
                let entry = &compiled.files[&name].javascript;
                if compiled.files.len() == 1 && step.cwd.is_none() {
                    match inline::inline_module(&compiled, "/workspace") {
                        Some(module) => evaluate(&module, ModuleKind::EsModule),
                        None => evaluate(&entry.code, entry.module_kind),
                    }
                } else {
                    let preload_path = format!("/tmp/.cofferdam-step-{number}.cjs");
                    let path = format!("/workspace/{name}");
                    let argv = words(&["node", preload::preload_option(&compiled), &preload_path, &path]);
                    let preload = preload::preload_script(&compiled, "/workspace");
                    files = Some(TypeScriptFiles { name, source: code.clone(), preload_path, preload });
                    argv
                }
            }
            Tool::ReadFile { .. } | Tool::WriteFile { .. } | Tool::Gui { .. } => return Ok(None),
        };
        let mut env = spec.env.clone();
        env.extend(step.env.clone());
        let request =
            ExecRequest { argv, env, cwd: step.cwd.clone(), terminal: None, stdin: false, timeout_ms: step.timeout_ms };
        request.validate().map_err(|error| error.to_string())?;
        Ok(Some(Self { request, files }))
    }

    /// Puts into the sandbox what the command needs; `id` is the command's.
    pub async fn install(&self, client: &Client, id: &ExecId) -> Result<(), SandboxError> {
        let Some(files) = &self.files else { return Ok(()) };
        if client.status(id).await.is_ok() {
            return Ok(());
        }
        let source = RequestBody::Bytes(Some(files.source.clone().into()));
        client.write_file(files.name.as_bytes(), source, WriteFile::default()).await?;
        let script = format!("umask 077; cat > {}", files.preload_path);
        let request =
            ExecRequest { argv: vec!["sh".into(), "-c".into(), script], stdin: true, ..ExecRequest::default() };
        let install = ExecId::try_from(format!("install-{:x}", crate::clock::random())).expect("it is a valid id");
        let stream = client.exec(&install, &request, 0, false).await?;
        let (sender, receiver) = mpsc::channel(1);
        let _ = sender.send(Ok(Bytes::from(files.preload.clone()))).await;
        drop(sender);
        client.stdin(&install, receiver).await?;
        let status = stream.follow(|_, _| ()).await?;
        client.forget(&install).await?;
        match status.outcome {
            Some(ExecOutcome::Exited { code: 0 }) => Ok(()),
            outcome => Err(SandboxError::Connection(format!("the compiled program cannot be stored: {outcome:?}"))),
        }
    }

    /// Takes away again what lies in the workspace.
    pub async fn uninstall(&self, client: &Client) {
        if let Some(files) = &self.files {
            let _ = client.remove(files.name.as_bytes(), false).await;
        }
    }
}

fn evaluate(code: &str, kind: ModuleKind) -> Vec<String> {
    let mut argv = vec!["node".to_owned()];
    argv.extend((kind == ModuleKind::EsModule).then(|| "--input-type=module".to_owned()));
    argv.extend(["--eval".to_owned(), code.to_owned()]);
    argv
}

/// On a thread that can be given up on.
async fn compile(workspace: &Workspace, entry: String, code: String) -> Result<tree::CompiledTree, String> {
    let files = workspace.try_clone().map_err(|error| error.to_string())?;
    let task = tokio::task::spawn_blocking(move || {
        let mut read = |path: &str| {
            if path == entry {
                return Ok(Some(code.clone()));
            }
            let path = RelativePath::parse(path.as_bytes()).map_err(std::io::Error::other)?;
            read_source(&files, &path)
        };
        tree::compile_tree(&entry, &mut read)
    });
    match tokio::time::timeout(COMPILE_TIMEOUT, task).await {
        Ok(Ok(compiled)) => compiled.map_err(|error| error.to_string()),
        Ok(Err(_)) => Err("the code cannot be compiled; simplify it".to_owned()),
        Err(_) => Err("the code could not be compiled within 10 s; simplify it".to_owned()),
    }
}

fn read_source(files: &Workspace, path: &RelativePath) -> std::io::Result<Option<String>> {
    let (content, stat) = match files.read(path, None) {
        Ok(found) => found,
        Err(cofferdam_linux::files::FileError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(std::io::Error::other(error)),
    };
    if stat.size_bytes > SOURCE_MAX_BYTES {
        return Err(std::io::Error::other("it is larger than 4 MiB, too large for a source file"));
    }
    let mut text = String::new();
    content.take(SOURCE_MAX_BYTES).read_to_string(&mut text)?;
    Ok(Some(text))
}
