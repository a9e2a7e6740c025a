//! A job as it runs, for people: each step with what it prints and how it ended, and at the bottom of a terminal what is
//! going on. Fed with events; what an event leaves out is fetched from the log.

use cofferdam_protocol::event::{Event, EventBody, OutputPart, StepResult};
use cofferdam_protocol::job::JobState;
use indicatif::ProgressBar;

use crate::client::Client;
use crate::client::log::{LogPart, read_log};
use crate::exec::Failure;
use crate::job::view;
use crate::progress_bar::spinner;
use crate::text::{self, Colour, Colours, Lines, print_line, printable};
use crate::{exit_code, terminal};

const STEP_WIDTH: usize = 100;

/// How a job ended.
#[derive(Debug)]
pub struct Outcome {
    pub state: JobState,
    /// The code of the last step that failed.
    step_code: Option<u8>,
}

impl Outcome {
    pub fn exit_code(&self) -> u8 {
        match self.state {
            JobState::Completed => 0,
            JobState::Cancelled => exit_code::CANCELLED,
            _ => self.step_code.filter(|code| *code != 0).unwrap_or(exit_code::JOB_FAILED),
        }
    }
}

pub struct Live<'a> {
    client: &'a Client,
    job: &'a str,
    /// Nobody looks: only the outcome counts.
    silent: bool,
    colours: Colours,
    total: u32,
    /// The running step's line on a terminal.
    bar: Option<ProgressBar>,
    output: Lines,
    step_code: Option<u8>,
    started_ms: Option<u64>,
    ended: Option<JobState>,
}

impl<'a> Live<'a> {
    /// `total` is 0 where nobody knows how many steps there will be.
    pub fn new(client: &'a Client, job: &'a str, total: u32, silent: bool) -> Result<Self, Failure> {
        let on_terminal = terminal::stdout_is_terminal() && terminal::stderr_is_terminal();
        let live = Self {
            client,
            job,
            silent,
            colours: Colours::of_stdout(),
            total,
            bar: (on_terminal && !silent).then(spinner),
            output: Lines::default(),
            step_code: None,
            started_ms: None,
            ended: None,
        };
        live.doing("waiting for its turn");
        live.line(&live.colours.paint(Colour::Dim, &format!("job {job}")))?;
        Ok(live)
    }

    /// For whoever else has something to say meanwhile.
    pub fn bar(&self) -> Option<ProgressBar> {
        self.bar.clone()
    }

    pub async fn show(&mut self, event: &Event) -> Result<(), Failure> {
        match &event.body {
            EventBody::Started => {
                self.started_ms.get_or_insert(event.time_ms);
                self.doing("starting a sandbox");
            }
            EventBody::StepStarted { step, attempt, tool, text, .. } => {
                let again = if *attempt > 1 { " once more" } else { "" };
                let text = text::first_line(text, STEP_WIDTH);
                self.line(&format!(
                    "▸ {} {}{again} {text}",
                    self.number(*step),
                    self.colours.paint(Colour::Dim, tool)
                ))?;
                self.doing(&format!("step {}", self.number(*step)));
            }
            EventBody::Output { log_from, log_to, excerpt, omitted_bytes, .. } => {
                self.output(excerpt, *omitted_bytes, *log_from..*log_to).await?;
            }
            EventBody::StepFinished { step, ok, result, duration_ms, .. } => {
                self.finish_output()?;
                if !ok {
                    self.step_code = match result {
                        StepResult::Exec { outcome } => Some(exit_code::of_outcome(outcome)),
                        StepResult::File { .. } | StepResult::Error { .. } => None,
                    };
                }
                let (sign, colour) = if *ok { ("✓", Colour::Green) } else { ("✗", Colour::Red) };
                let reason = if *ok { String::new() } else { format!(" {},", printable(&result.to_string())) };
                let sign = self.colours.paint(colour, sign);
                self.line(&format!("{sign} {}{reason} {}", self.number(*step), text::duration(*duration_ms)))?;
                self.doing("between steps");
            }
            EventBody::Resumed { reason } => self.note(&format!("another server carries on: {reason}"))?,
            EventBody::SandboxLost { reason, .. } => self.note(&format!("the sandbox was lost: {reason}"))?,
            EventBody::Connection { host, port, reason: Some(reason), .. } => {
                self.note(&format!("no connection to {host}:{port}: {reason}"))?;
            }
            EventBody::CancelRequested => self.doing("cancelling"),
            EventBody::Ended { state, reason } => {
                self.finish_output()?;
                self.ended = Some(*state);
                let took = self.started_ms.map(|from| text::duration(event.time_ms.saturating_sub(from)));
                let took = took.map(|took| self.colours.paint(Colour::Dim, &format!(" ({took})"))).unwrap_or_default();
                self.line(&format!("{}{took}", view::verdict(self.colours, *state, reason.as_deref())))?;
            }
            _ => {}
        }
        Ok(())
    }

    pub fn finish(mut self) -> Result<Outcome, Failure> {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let state = self.ended.ok_or_else(|| Failure::new(exit_code::SERVER, "the job's end was not told"))?;
        Ok(Outcome { state, step_code: self.step_code })
    }

    async fn output(
        &mut self,
        excerpt: &[OutputPart],
        omitted_bytes: u64,
        range: std::ops::Range<u64>,
    ) -> Result<(), Failure> {
        if self.silent {
            return Ok(());
        }
        if omitted_bytes == 0 {
            let text: String = excerpt.iter().map(|part| part.text.as_str()).collect();
            return self.output_bytes(text.as_bytes());
        }
        let (client, job) = (self.client, self.job);
        let part = LogPart { range: Some(range), ..LogPart::default() };
        read_log(client, job, &part, |bytes| self.output_bytes(bytes)).await
    }

    /// All lines at once: on a terminal, each writing moves the bottom line out of the way and back.
    fn output_bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let mut shown = Vec::new();
        let mut lines = std::mem::take(&mut self.output);
        lines.feed(bytes, |line| {
            shown.push(self.output_line(line));
            Ok(())
        })?;
        self.output = lines;
        if shown.is_empty() { Ok(()) } else { self.line(&shown.join("\n")) }
    }

    fn finish_output(&mut self) -> Result<(), Failure> {
        let mut lines = std::mem::take(&mut self.output);
        lines.finish(|line| self.line(&self.output_line(line)))
    }

    fn output_line(&self, line: &str) -> String {
        let line = if terminal::stdout_is_terminal() { printable(line) } else { line.to_owned() };
        format!("  {} {line}", self.colours.paint(Colour::Dim, "│"))
    }

    fn note(&self, text: &str) -> Result<(), Failure> {
        self.line(&format!("{} {}", self.colours.paint(Colour::Yellow, "!"), printable(text)))
    }

    /// `1/3`, or `1` where nobody knows of how many.
    fn number(&self, step: u32) -> String {
        if self.total > 0 { format!("{step}/{}", self.total) } else { step.to_string() }
    }

    fn doing(&self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.reset_elapsed();
            bar.set_message(what.to_owned());
        }
    }

    fn line(&self, line: &str) -> Result<(), Failure> {
        match &self.bar {
            _ if self.silent => Ok(()),
            Some(bar) => bar.suspend(|| print_line(line)),
            None => print_line(line),
        }
    }
}
