//! What clients send, in every dialect, and how it becomes a job that is valid by type. Each refusal names the field
//! and what to write instead.

use std::collections::BTreeMap;

use base64::Engine;
use cofferdam_linux::files::RelativePath;
use cofferdam_protocol::job::{JobId, JobSpec, Step, Tool, WhenLost, Work};
use cofferdam_protocol::{Limits, NetworkPolicy};
use serde::Deserialize;
use utoipa::ToSchema;

use crate::Settings;

/// More are a program, and better written as one.
const STEPS_MAX: usize = 10_000;
/// The kernel bounds a single argument of a command at 128 KiB.
const COMMAND_MAX_BYTES: usize = 96 * 1024;
const GOAL_MAX_BYTES: usize = 1 << 20;
const LABELS_MAX: usize = 64;
const LABEL_MAX_BYTES: usize = 256;
/// Files within a JSON body; more are sent as multipart.
const FILES_MAX: usize = 10_000;

/// The body of `POST /schedule`: exactly one of `steps`, `task` and `prompt`, and options.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object with steps, task or prompt")]
pub struct JobRequest {
    /// What to do, in order; a step that fails ends the job unless it says `continue_on_error`.
    #[schema(min_items = 1, max_items = 10000)]
    steps: Option<Vec<StepRequest>>,
    /// A goal in plain text.
    task: Option<String>,
    /// The same as `task`.
    prompt: Option<String>,
    #[serde(flatten)]
    options: Options,
}

/// The body of `POST /sandboxes`.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, expecting = "an object")]
pub struct SandboxRequest {
    /// How long it lives: seconds, or text such as `10m`.
    ttl: Option<Amount>,
    #[serde(flatten)]
    options: Options,
}

#[derive(Debug, Default, Deserialize, ToSchema)]
pub struct Options {
    /// Environment variables of every step.
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// `cpu`, `memory`, `processes`, `files`, `workspace`, `tmp`, `time`, as in `{"memory": "512MiB"}`.
    #[serde(default)]
    limits: BTreeMap<String, Amount>,
    network: Option<NetworkRequest>,
    /// Of the whole job: seconds, or text such as `10m`.
    timeout: Option<Amount>,
    /// How long it may neither print nor use the processor; 0 for ever.
    idle_timeout: Option<Amount>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    /// Input files.
    #[serde(default)]
    files: Vec<FileRequest>,
    /// A job that has ended: its workspace is copied.
    parent: Option<String>,
    when_lost: Option<WhenLostRequest>,
}

#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct StepRequest {
    tool: ToolName,
    /// Of `shell`, `bash` and `gui`.
    command: Option<String>,
    /// Of `python`, `javascript` and `typescript`.
    code: Option<String>,
    /// Of `read_file` and `write_file`.
    path: Option<String>,
    /// Of `write_file`.
    content: Option<String>,
    timeout: Option<Amount>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    /// Relative to the workspace.
    cwd: Option<String>,
    #[serde(default)]
    continue_on_error: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum ToolName {
    Shell,
    Bash,
    Python,
    Javascript,
    Typescript,
    ReadFile,
    WriteFile,
    Gui,
    Xdotool,
    Xdot,
}

/// A number in the usual unit, or text with a unit.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "a number, or text such as \"10m\" or \"512MiB\", is expected")]
pub enum Amount {
    Number(f64),
    Text(String),
}

/// `none`, `open`, or names with commas; or a list of names.
#[derive(Debug, Clone, Deserialize, ToSchema)]
#[serde(untagged, expecting = "\"none\", \"open\", or a list of names is expected")]
enum NetworkRequest {
    Policy(String),
    Names(Vec<String>),
}

#[derive(Debug, Clone, Copy, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
enum WhenLostRequest {
    Fail,
    Retry,
}

/// One of `content` and `content_base64`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct FileRequest {
    path: String,
    content: Option<String>,
    content_base64: Option<String>,
    /// Permission bits, as a number: 493 is 0755.
    mode: Option<u32>,
}

/// A file that came in the JSON itself.
#[derive(Debug, PartialEq, Eq)]
pub struct InputFile {
    pub path: RelativePath,
    pub content: Vec<u8>,
    pub mode: Option<u32>,
}

/// What a field says that it must not.
#[derive(Debug, PartialEq, Eq)]
pub struct Invalid {
    pub field: String,
    pub message: String,
}

impl Invalid {
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl JobRequest {
    pub fn goal(text: String) -> Self {
        Self { task: Some(text), ..Self::default() }
    }

    pub fn with_text(mut self, field: &str, text: String) -> Result<Self, Invalid> {
        match field {
            "task" => self.task = Some(text),
            "prompt" => self.prompt = Some(text),
            _ => {
                let wrong = |error: serde_json::Error| Invalid::new("steps", format!("it is not JSON: {error}"));
                self.steps = Some(serde_json::from_str(&text).map_err(wrong)?);
            }
        }
        Ok(self)
    }

    pub fn into_spec(self, settings: &Settings) -> Result<(JobSpec, Vec<InputFile>), Invalid> {
        let work = match (self.steps, self.task, self.prompt) {
            (Some(steps), None, None) => Work::Steps(to_steps(steps)?),
            (None, Some(goal), None) => Work::Goal(to_goal("task", goal)?),
            (None, None, Some(goal)) => Work::Goal(to_goal("prompt", goal)?),
            (None, None, None) => {
                return Err(Invalid::new("steps", "there is nothing to do; send steps, or a goal as task or prompt"));
            }
            _ => {
                return Err(Invalid::new("steps", "send either steps or a goal (task or prompt), not several of them"));
            }
        };
        self.options.into_spec(work, settings)
    }
}

impl SandboxRequest {
    pub fn into_spec(mut self, settings: &Settings) -> Result<(JobSpec, Vec<InputFile>), Invalid> {
        match (self.ttl.is_some(), self.options.timeout.is_some()) {
            (true, true) => return Err(Invalid::new("ttl", "ttl and timeout mean the same here; send one of them")),
            (true, false) => self.options.timeout = self.ttl,
            _ => {}
        }
        self.options.into_spec(Work::Interactive, settings)
    }
}

impl Options {
    fn into_spec(self, work: Work, settings: &Settings) -> Result<(JobSpec, Vec<InputFile>), Invalid> {
        check_env("env", &self.env)?;
        let mut limits = Limits::default();
        for (name, value) in &self.limits {
            let field = format!("limits.{name}");
            limits.set(&format!("{name}={}", value.text())).map_err(|error| Invalid::new(field, error.to_string()))?;
        }
        let network = match self.network {
            None => NetworkPolicy::None,
            Some(NetworkRequest::Policy(text)) => to_network(&text)?,
            Some(NetworkRequest::Names(names)) if names.is_empty() => NetworkPolicy::None,
            Some(NetworkRequest::Names(names)) => to_network(&names.join(","))?,
        };
        if self.labels.len() > LABELS_MAX {
            return Err(Invalid::new("labels", format!("there are {}, the most is {LABELS_MAX}", self.labels.len())));
        }
        for (name, value) in &self.labels {
            if name.is_empty() || name.len() > LABEL_MAX_BYTES || value.len() > LABEL_MAX_BYTES || name.contains('=') {
                let message = "a label's name and value have at most 256 bytes each, and the name is not empty and holds no \"=\"";
                return Err(Invalid::new(format!("labels.{name}"), message));
            }
        }
        if self.files.len() > FILES_MAX {
            let message =
                format!("there are {}, the most is {FILES_MAX}; send them as multipart/form-data", self.files.len());
            return Err(Invalid::new("files", message));
        }
        let files: Vec<InputFile> =
            self.files.into_iter().enumerate().map(|(index, file)| file.decode(index)).collect::<Result<_, _>>()?;
        let parent = self
            .parent
            .map(|parent| JobId::try_from(parent).map_err(|error| Invalid::new("parent", error.to_string())));
        let spec = JobSpec {
            work,
            env: self.env,
            limits,
            network,
            timeout_ms: positive("timeout", self.timeout, settings.job_timeout_ms)?,
            idle_timeout_ms: duration_ms("idle_timeout", self.idle_timeout, settings.idle_timeout_ms)?,
            labels: self.labels,
            when_lost: match self.when_lost {
                Some(WhenLostRequest::Retry) => WhenLost::Retry,
                Some(WhenLostRequest::Fail) | None => WhenLost::Fail,
            },
            parent: parent.transpose()?,
            retry_of: None,
            has_input: !files.is_empty(),
        };
        Ok((spec, files))
    }
}

impl FileRequest {
    fn decode(self, index: usize) -> Result<InputFile, Invalid> {
        let field = |name: &str| format!("files[{index}].{name}");
        let path = to_path(&field("path"), &self.path)?;
        let content = match (self.content, self.content_base64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(encoded)) => base64::engine::general_purpose::STANDARD.decode(encoded).map_err(|error| {
                let error = error.to_string().trim_end_matches('.').to_lowercase();
                let remedy = "encode the content with A-Z, a-z, 0-9, + and /, and = at its end";
                Invalid::new(field("content_base64"), format!("it is not base64 ({error}); {remedy}"))
            })?,
            _ => return Err(Invalid::new(field("content"), "a file has one of content and content_base64")),
        };
        if self.mode.is_some_and(|mode| mode > 0o777) {
            return Err(Invalid::new(field("mode"), "permission bits are between 0 and 511 (0777)"));
        }
        Ok(InputFile { path, content, mode: self.mode })
    }
}

pub fn to_path(field: &str, path: &str) -> Result<RelativePath, Invalid> {
    let parsed = RelativePath::parse(path.as_bytes()).map_err(|error| Invalid::new(field, error.to_string()))?;
    if parsed.is_root() {
        return Err(Invalid::new(field, "it names the workspace itself; name a file in it"));
    }
    Ok(parsed)
}

fn to_goal(field: &str, goal: String) -> Result<String, Invalid> {
    if goal.trim().is_empty() {
        return Err(Invalid::new(field, "the goal is empty; say what is to be done"));
    }
    if goal.len() > GOAL_MAX_BYTES {
        return Err(Invalid::new(field, "the goal is longer than 1 MiB; put what belongs to it into input files"));
    }
    Ok(goal)
}

fn to_steps(steps: Vec<StepRequest>) -> Result<Vec<Step>, Invalid> {
    if steps.is_empty() {
        return Err(Invalid::new("steps", "the list is empty; send at least one step"));
    }
    if steps.len() > STEPS_MAX {
        return Err(Invalid::new(
            "steps",
            format!("there are {}, the most is {STEPS_MAX}; put them into a script and run that", steps.len()),
        ));
    }
    steps.into_iter().enumerate().map(|(index, step)| step.into_step(index)).collect()
}

impl StepRequest {
    fn into_step(self, index: usize) -> Result<Step, Invalid> {
        let field = |name: &str| format!("steps[{index}].{name}");
        let (wanted, tool_name): (&[&str], _) = match self.tool {
            ToolName::Shell => (&["command"], "shell"),
            ToolName::Bash => (&["command"], "bash"),
            ToolName::Gui | ToolName::Xdotool | ToolName::Xdot => (&["command"], "gui"),
            ToolName::Python => (&["code"], "python"),
            ToolName::Javascript => (&["code"], "javascript"),
            ToolName::Typescript => (&["code"], "typescript"),
            ToolName::ReadFile => (&["path"], "read_file"),
            ToolName::WriteFile => (&["path", "content"], "write_file"),
        };
        let given =
            [("command", &self.command), ("code", &self.code), ("path", &self.path), ("content", &self.content)];
        for (name, value) in given {
            match (wanted.contains(&name), value) {
                (true, None) => return Err(Invalid::new(field(name), format!("it is missing; {tool_name} needs it"))),
                (false, Some(_)) => {
                    let message = format!("{tool_name} has no {name}; it needs {}", wanted.join(" and "));
                    return Err(Invalid::new(field(name), message));
                }
                (true, Some(text)) if name != "content" && text.is_empty() => {
                    return Err(Invalid::new(field(name), "it is empty; say what to do"));
                }
                (true, Some(text)) if name != "content" && text.contains('\0') => {
                    return Err(Invalid::new(field(name), "it holds a NUL byte; remove it"));
                }
                (true, Some(text)) if name != "content" && text.len() > COMMAND_MAX_BYTES => {
                    let message = "it is longer than 96 KiB; send it as an input file and run that";
                    return Err(Invalid::new(field(name), message));
                }
                _ => {}
            }
        }
        check_env(&field("env"), &self.env)?;
        if let Some(cwd) = &self.cwd
            && cwd.contains('\0')
        {
            return Err(Invalid::new(field("cwd"), "it holds a NUL byte; remove it"));
        }
        let (command, code) = (self.command.unwrap_or_default(), self.code.unwrap_or_default());
        let path = self.path.unwrap_or_default();
        if matches!(self.tool, ToolName::ReadFile | ToolName::WriteFile) {
            to_path(&field("path"), &path)?;
        }
        let tool = match self.tool {
            ToolName::Shell => Tool::Shell { command },
            ToolName::Bash => Tool::Bash { command },
            ToolName::Gui | ToolName::Xdotool | ToolName::Xdot => Tool::Gui { command },
            ToolName::Python => Tool::Python { code },
            ToolName::Javascript => Tool::Javascript { code },
            ToolName::Typescript => Tool::Typescript { code },
            ToolName::ReadFile => Tool::ReadFile { path },
            ToolName::WriteFile => Tool::WriteFile { path, content: self.content.unwrap_or_default() },
        };
        let timeout_ms = duration_ms(&field("timeout"), self.timeout, 0)?;
        Ok(Step { tool, timeout_ms, env: self.env, cwd: self.cwd, continue_on_error: self.continue_on_error })
    }
}

impl Amount {
    fn text(&self) -> String {
        match self {
            Self::Number(number) => number.to_string(),
            Self::Text(text) => text.clone(),
        }
    }
}

/// Seconds, or text with a unit.
pub fn duration_ms(field: &str, amount: Option<Amount>, default_ms: u64) -> Result<u64, Invalid> {
    let Some(amount) = amount else { return Ok(default_ms) };
    let text = match amount {
        Amount::Number(seconds) if !(0.0..=1e9).contains(&seconds) => {
            return Err(Invalid::new(field, "it is not a number of seconds; write 30, or \"10m\""));
        }
        Amount::Number(seconds) => format!("{}ms", (seconds * 1_000.0).ceil()),
        Amount::Text(text) => text,
    };
    let mut scratch = Limits::default();
    scratch.set(&format!("time={text}")).map_err(|_| {
        Invalid::new(field, "it is not a time of at most 30 days; write seconds as a number, or \"10m\"")
    })?;
    Ok(scratch.time_ms)
}

fn positive(field: &str, amount: Option<Amount>, default_ms: u64) -> Result<u64, Invalid> {
    match duration_ms(field, amount, default_ms)? {
        0 => Err(Invalid::new(field, "it must be more than 0; leave it out for the default")),
        time_ms => Ok(time_ms),
    }
}

fn to_network(text: &str) -> Result<NetworkPolicy, Invalid> {
    text.parse().map_err(|error: cofferdam_protocol::network::PatternError| Invalid::new("network", error.to_string()))
}

pub fn check_env(field: &str, env: &BTreeMap<String, String>) -> Result<(), Invalid> {
    let mut total = 0;
    for (name, value) in env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            let message = "the name of a variable is not empty and holds no \"=\", and neither part holds a NUL byte";
            return Err(Invalid::new(format!("{field}.{name}"), message));
        }
        total += name.len() + value.len() + 2;
    }
    if total > COMMAND_MAX_BYTES {
        return Err(Invalid::new(field, "all variables together are longer than 96 KiB; put large data into a file"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<JobSpec, String> {
        let settings = Settings::new("127.0.0.1:0".parse().unwrap(), "data".into());
        let request: JobRequest = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let (spec, _) =
            request.into_spec(&settings).map_err(|invalid| format!("{}: {}", invalid.field, invalid.message))?;
        Ok(spec)
    }

    #[test]
    fn every_dialect_becomes_the_same_kind_of_job() {
        let steps = parse(r#"{"steps": [{"tool": "xdot", "command": "click 1"}, {"tool": "write_file", "path": "a", "content": "", "timeout": 1.5}], "timeout": "10m", "limits": {"cpu": 1, "memory": "64MiB"}, "network": ["example.org"]}"#).unwrap();
        assert_eq!(steps.work.steps()[0].tool, Tool::Gui { command: "click 1".to_owned() });
        assert_eq!(steps.work.steps()[1].timeout_ms, 1_500);
        assert_eq!((steps.timeout_ms, steps.limits.cpu_milli), (600_000, 1_000));
        assert_eq!(steps.network.to_string(), "example.org");
        for json in [r#"{"task": "do it"}"#, r#"{"prompt": "do it"}"#] {
            assert_eq!(parse(json).unwrap().work, Work::Goal("do it".to_owned()));
        }
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (json, expected) in [
            ("{}", "steps: there is nothing to do"),
            (r#"{"steps": []}"#, "steps: the list is empty"),
            (r#"{"steps": [], "prompt": "x"}"#, "steps: send either steps or a goal"),
            (r#"{"task": " "}"#, "task: the goal is empty"),
            (r#"{"steps": [{"tool": "fly"}]}"#, "unknown variant `fly`, expected one of `shell`"),
            (r#"{"steps": [{"tool": "shell"}]}"#, "steps[0].command: it is missing; shell needs it"),
            (r#"{"steps": [{"tool": "shell", "command": "ls", "code": "x"}]}"#, "steps[0].code: shell has no code"),
            (
                r#"{"steps": [{"tool": "read_file", "path": "../x"}]}"#,
                "steps[0].path: \"../x\" is not a path in the workspace",
            ),
            (r#"{"steps": [{"tool": "read_file", "path": "a\u0000b"}]}"#, "steps[0].path: it holds a NUL byte"),
            (r#"{"task": "x", "limits": {"memory": "lots"}}"#, "limits.memory: \"lots\" is not a value"),
            (r#"{"task": "x", "timeout": -1}"#, "timeout: it is not a number of seconds"),
            (r#"{"task": "x", "timeout": 0}"#, "timeout: it must be more than 0"),
            (r#"{"task": "x", "timeuot": 1}"#, "unknown field `timeuot`"),
            (r#"{"task": "x", "files": [{"path": "a"}]}"#, "files[0].content: a file has one of"),
            (r#"{"task": "x", "env": {"A=B": "c"}}"#, "env.A=B: the name of a variable"),
            (r#"{"task": "x", "parent": "zzz"}"#, "parent: a job id is 26 letters and digits"),
        ] {
            let error = parse(json).unwrap_err();
            assert!(error.contains(expected), "{json}: {error}");
        }
        let many = format!(r#"{{"steps": [{}]}}"#, vec![r#"{"tool":"shell","command":"x"}"#; 10_001].join(","));
        assert_eq!(
            parse(&many).unwrap_err(),
            "steps: there are 10001, the most is 10000; put them into a script and run that"
        );
    }
}
