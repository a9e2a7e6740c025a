//! `--lang`: a source file instead of a command. Python and JavaScript are taken along as they are; TypeScript is
//! made JavaScript here, outside, so that any node from 18.19 on runs it. The file comes from the workspace when there is
//! one, and alone (TypeScript with what it imports by relative path) into an empty workspace otherwise.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use clap::ValueEnum;
use cofferdam_linux::files::{RelativePath, Workspace};
use cofferdam_protocol::exec::{ExecId, ExecOutcome, ExecRequest};
use cofferdam_sandbox::client::{Client, RequestBody, WriteFile};
use cofferdam_typescript::{inline, preload, tree};
use tokio::sync::mpsc;

use crate::exec::Failure;
use crate::exit_code::{FAILED, SOURCE_WRONG, USAGE};

/// Source files larger than this are data.
const SOURCE_MAX_BYTES: u64 = 4 * 1024 * 1024;
/// The source is as untrusted as what it does: a file made to keep the parser busy is given up on.
const COMPILE_TIMEOUT: Duration = Duration::from_secs(10);
/// Where the compiled program is put in the sandbox, out of the workspace.
const PRELOAD_PATH: &str = "/tmp/.cofferdam-program.cjs";

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Language {
    #[value(alias = "py")]
    Python,
    #[value(alias = "js")]
    Javascript,
    #[value(alias = "ts")]
    Typescript,
    #[value(alias = "sh")]
    Shell,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Engine {
    Node,
    Deno,
    Bun,
}

/// A program ready to be put into a sandbox.
pub struct Program {
    pub argv: Vec<String>,
    /// The file itself, where the workspace does not hold it already.
    upload: Option<(Vec<u8>, Vec<u8>)>,
    preload: Option<String>,
}

impl Program {
    /// `command`: the file, then its arguments.
    pub fn load(
        language: Language,
        engine: Option<Engine>,
        command: &[String],
        workspace: Option<&Path>,
        starts_in_workspace: bool,
    ) -> Result<Self, Failure> {
        let wrong = |message: String| Failure::new(SOURCE_WRONG, message);
        let Some((file, arguments)) = command.split_first() else {
            return Err(Failure::new(
                USAGE,
                "no file was given; write it after the options: cofferdam exec --lang python main.py",
            ));
        };
        if engine.is_some() && !matches!(language, Language::Javascript | Language::Typescript) {
            return Err(Failure::new(USAGE, "--engine is for --lang javascript and --lang typescript"));
        }
        let (base, name) = place(file, workspace);
        let files = Workspace::open(&base).map_err(|error| wrong(format!("{file}: {error}")))?;
        let path = RelativePath::parse(name.as_bytes()).map_err(|error| wrong(error.to_string()))?;
        let source =
            read(&files, &path).map_err(&wrong)?.ok_or_else(|| wrong(format!("the file {file} does not exist")))?;

        let inside = format!("/workspace/{path}");
        let mut argv: Vec<String> = match (language, engine.unwrap_or(Engine::Node)) {
            (Language::Python, _) => vec!["python3".into(), inside],
            (Language::Shell, _) => vec!["sh".into(), inside],
            (_, Engine::Deno) => vec!["deno".into(), "run".into(), "-A".into(), inside],
            (_, Engine::Bun) => vec!["bun".into(), inside],
            (_, Engine::Node) => vec!["node".into(), inside],
        };
        let mut preload = None;
        if language == Language::Typescript && matches!(engine, None | Some(Engine::Node)) {
            let compiled = compile(files, path.to_string())?;
            match inline::inline_module(&compiled, "/workspace").filter(|_| starts_in_workspace) {
                Some(code) => {
                    let inline = ["node", "--input-type=module", "--eval", &code, "--"];
                    argv = inline.into_iter().map(str::to_owned).collect();
                }
                None => {
                    argv.splice(1..1, [preload::preload_option(&compiled).to_owned(), PRELOAD_PATH.to_owned()]);
                    preload = Some(preload::preload_script(&compiled, "/workspace"));
                }
            }
        }
        argv.extend(arguments.iter().cloned());
        let upload = workspace.is_none().then(|| (path.as_bytes().to_vec(), source.into_bytes()));
        Ok(Self { argv, upload, preload })
    }

    /// Puts the files into the sandbox.
    pub async fn install(&self, client: &Client) -> Result<(), Failure> {
        if let Some((path, content)) = &self.upload {
            let body = RequestBody::Bytes(Some(content.clone().into()));
            client.write_file(path, body, WriteFile { parents: true, ..WriteFile::default() }).await?;
        }
        if let Some(preload) = &self.preload {
            write_outside_workspace(client, PRELOAD_PATH, preload).await?;
        }
        Ok(())
    }
}

/// The directory that the file is read from, and its name in there.
fn place(file: &str, workspace: Option<&Path>) -> (PathBuf, String) {
    match workspace {
        Some(workspace) => {
            // Named as from here, or as in the sandbox: `--workspace dir dir/main.py` and `main.py` are both clear.
            let below = Path::new(file).strip_prefix(workspace).ok().and_then(Path::to_str);
            (workspace.to_owned(), below.unwrap_or(file).to_owned())
        }
        None => {
            let path = Path::new(file);
            let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let name = path.file_name().and_then(|name| name.to_str()).unwrap_or(file);
            (parent.to_owned(), name.to_owned())
        }
    }
}

fn read(files: &Workspace, path: &RelativePath) -> Result<Option<String>, String> {
    let (mut content, stat) = match files.read(path, None) {
        Ok(found) => found,
        Err(cofferdam_linux::files::FileError::NotFound { .. }) => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    if stat.size_bytes > SOURCE_MAX_BYTES {
        return Err(format!("{path} is larger than 4 MiB, too large for a source file"));
    }
    let mut text = String::new();
    content.read_to_string(&mut text).map_err(|error| format!("{path} is not text in UTF-8: {error}"))?;
    Ok(Some(text))
}

/// On a thread that can be given up on.
fn compile(files: Workspace, entry: String) -> Result<tree::CompiledTree, Failure> {
    let (sender, receiver) = std::sync::mpsc::channel();
    let name = entry.clone();
    std::thread::spawn(move || {
        let mut reader = |path: &str| {
            let path = RelativePath::parse(path.as_bytes()).map_err(std::io::Error::other)?;
            read(&files, &path).map_err(std::io::Error::other)
        };
        let _ = sender.send(tree::compile_tree(&entry, &mut reader));
    });
    match receiver.recv_timeout(COMPILE_TIMEOUT) {
        Ok(compiled) => compiled.map_err(|error| Failure::new(SOURCE_WRONG, error)),
        Err(_) => Err(Failure::new(SOURCE_WRONG, format!("{name} could not be compiled within 10 s; simplify it"))),
    }
}

/// The file interface reaches the workspace only, so a command inside writes this one.
async fn write_outside_workspace(client: &Client, path: &str, content: &str) -> Result<(), Failure> {
    let id = ExecId::try_from("install".to_owned()).expect("it is a valid id");
    let script = format!("umask 077; cat > {path}");
    let request = ExecRequest { argv: vec!["sh".into(), "-c".into(), script], stdin: true, ..ExecRequest::default() };
    let (sender, receiver) = mpsc::channel(1);
    sender.send(Ok(Bytes::copy_from_slice(content.as_bytes()))).await.expect("the receiver is here");
    drop(sender);
    let stream = client.exec(&id, &request, 0, false).await?;
    client.stdin(&id, receiver).await?;
    let status = stream.follow(|_, _| ()).await?;
    match status.outcome {
        Some(ExecOutcome::Exited { code: 0 }) => Ok(()),
        outcome => Err(Failure::new(FAILED, format!("the program could not be put into the sandbox: {outcome:?}"))),
    }
}
