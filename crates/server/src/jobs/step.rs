//! One step: a command in the sandbox, followed to its end however that comes about, or a file read or written.

use std::io::Read;
use std::time::Duration;

use cofferdam_linux::files::{RelativePath, WriteOptions};
use cofferdam_protocol::event::{EventBody, StepResult};
use cofferdam_protocol::exec::{ExecId, ExecOutcome};
use cofferdam_protocol::job::{Step, Tool, WhenLost};
use cofferdam_protocol::limits::show_bytes;
use cofferdam_protocol::limits::show_duration;
use cofferdam_sandbox::SandboxError;
use cofferdam_sandbox::client::Client;
use tokio::time::Instant;

use super::log::{heading, shorten, trailer};
use super::output::Output;
use super::program::Program;
use super::progress::StepProgress;
use super::run::{Ending, Ongoing, Run};
use crate::clock::now_ms;

/// How often a step that keeps losing its sandbox is begun, where it may be begun again.
const ATTEMPTS_MAX: u32 = 3;
/// Of a command or code that an event shows.
const TEXT_MAX_CHARS: usize = 500;
/// What a `read_file` step prints.
const READ_MAX_BYTES: u64 = 1 << 20;
/// How often a running step's sandbox gets its lease renewed and is looked at for a sign of life.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Processor time below this is no progress: a sleeping loop uses some.
const PROGRESS_CPU_MS: u64 = 50;

/// How far a step came.
enum End {
    Done(StepResult),
    /// The sandbox is gone, nobody knows what the command did.
    Lost(String),
    /// Ended from our side; the job is over.
    Stopped(StepResult, Ending),
}

/// One attempt at a step.
struct Attempt {
    number: u32,
    attempt: u32,
    started_ms: u64,
    log_from: u64,
    /// Where in the guest's sequence of output to go on.
    position: u64,
    is_recorded: bool,
}

impl Run {
    /// Carries out a step, or goes on with it. Whether it went well is what the job's course depends on.
    pub(super) async fn step(&mut self, number: u32, running: Option<StepProgress>) -> Ongoing<(bool, StepResult)> {
        let spec = self.spec.clone();
        let step = &spec.work.steps()[number as usize - 1];
        let mut attempt = match running {
            Some(StepProgress::Running { attempt, started_ms, log_from, position, .. }) => {
                Attempt { number, attempt, started_ms, log_from, position, is_recorded: true }
            }
            _ => Attempt { number, attempt: 1, started_ms: now_ms(), log_from: 0, position: 0, is_recorded: false },
        };
        loop {
            match self.attempt(step, &mut attempt).await? {
                End::Done(result) => return self.finish_step(&attempt, result).await,
                End::Stopped(result, ending) => {
                    // A server that takes over from here must not go on with the next step.
                    if let Ending::Failed(reason) = &ending {
                        self.change.reason = Some(reason.clone());
                    }
                    self.finish_step(&attempt, result).await?;
                    return Err(ending);
                }
                End::Lost(reason) => {
                    self.lose_sandbox(&reason).await;
                    let message = format!("was lost with its sandbox: {reason}");
                    if spec.when_lost == WhenLost::Fail || attempt.attempt >= ATTEMPTS_MAX {
                        return self.finish_step(&attempt, StepResult::Error { message }).await;
                    }
                    let line = self.log.line(&format!("── the step {message}; it is begun again"));
                    self.write_log(line).await?;
                    let again = attempt.attempt + 1;
                    attempt = Attempt {
                        number,
                        attempt: again,
                        started_ms: now_ms(),
                        log_from: 0,
                        position: 0,
                        is_recorded: false,
                    };
                }
            }
        }
    }

    async fn attempt(&mut self, step: &Step, attempt: &mut Attempt) -> Ongoing<End> {
        let program = match Program::new(&self.spec, attempt.number, step, &self.workspace).await {
            Ok(program) => program,
            Err(message) => {
                self.begin_step(step, attempt).await?;
                return Ok(End::Done(StepResult::Error { message }));
            }
        };
        let Some(program) = program else {
            self.begin_step(step, attempt).await?;
            return self.file_step(step).await.map(End::Done);
        };
        let lost = |error: SandboxError| End::Lost(error.to_string());
        if attempt.is_recorded && self.live.sandbox.read().await.is_none() {
            self.tell_lost();
            return Ok(End::Lost("the server was restarted and the sandbox was gone".to_owned()));
        }
        let client = self.sandbox().await?;
        self.begin_step(step, attempt).await?;
        let id = ExecId::try_from(format!("step-{}-{}", attempt.number, attempt.attempt)).expect("it is a valid id");
        if let Err(error) = program.install(&client, &id).await {
            return Ok(lost(error));
        }
        let end = self.follow(&client, &id, &program, attempt).await;
        program.uninstall(&client).await;
        end
    }

    /// The heading in the log, and the event without which no command is sent.
    async fn begin_step(&mut self, step: &Step, attempt: &mut Attempt) -> Ongoing<()> {
        if attempt.is_recorded {
            return Ok(());
        }
        let total = self.spec.work.steps().len() as u32;
        let line = self.log.line(&heading(attempt.number, total, attempt.attempt, step));
        self.write_log(line).await?;
        attempt.log_from = self.log.end();
        attempt.started_ms = now_ms();
        attempt.is_recorded = true;
        self.record(vec![EventBody::StepStarted {
            step: attempt.number,
            attempt: attempt.attempt,
            tool: step.tool.name().to_owned(),
            text: shorten(step.tool.text(), TEXT_MAX_CHARS),
            log_from: attempt.log_from,
        }])
        .await
    }

    /// The result is recorded together with whatever comes next: the beginning of another step, or the job's end.
    async fn finish_step(&mut self, attempt: &Attempt, result: StepResult) -> Ongoing<(bool, StepResult)> {
        let is_ok = match &result {
            StepResult::Exec { outcome } => *outcome == ExecOutcome::Exited { code: 0 },
            StepResult::File { .. } => true,
            StepResult::Error { .. } => false,
        };
        let duration_ms = now_ms().saturating_sub(attempt.started_ms);
        self.jobs.metrics.step_ended(Duration::from_millis(duration_ms));
        let log_to = self.log.end();
        let line = self.log.line(&trailer(&result, duration_ms));
        self.write_log(line).await?;
        self.steps_done = attempt.number;
        self.pending.push(EventBody::StepFinished {
            step: attempt.number,
            attempt: attempt.attempt,
            ok: is_ok,
            result: result.clone(),
            duration_ms,
            log_from: attempt.log_from,
            log_to,
        });
        Ok((is_ok, result))
    }

    /// A command from its start, or from where its output was last recorded, to its end.
    async fn follow(&mut self, client: &Client, id: &ExecId, program: &Program, attempt: &Attempt) -> Ongoing<End> {
        let mut stream = match client.exec(id, &program.request, attempt.position, true).await {
            Ok(stream) => stream,
            Err(error @ SandboxError::Refused { .. }) => {
                return Ok(End::Done(StepResult::Error { message: error.to_string() }));
            }
            Err(error) => return Ok(End::Lost(error.to_string())),
        };
        let mut output = Output::new(attempt.number, attempt.position, self.log.end());
        let interval = CHECK_INTERVAL.min(self.jobs.renew_interval());
        let mut check = tokio::time::interval_at(Instant::now() + interval, interval);
        let mut sign_of_life = SignOfLife { at: Instant::now(), cpu_ms: 0, log_end: self.log.end() };
        let ended: Option<(String, Ending)> = loop {
            let due = output.event_due(self.log.end());
            let event_due = async {
                match due {
                    Some(due) => tokio::time::sleep_until(due).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = self.live.cancel.cancelled() => break Some(("cancelled by request".to_owned(), Ending::Cancelled)),
                () = self.jobs.detach.cancelled() => return Err(Ending::Detached),
                () = tokio::time::sleep_until(self.deadline) => {
                    let reason = format!("the job's time of {} is over", show_duration(self.spec.timeout_ms));
                    break Some((reason.clone(), Ending::Failed(reason)));
                }
                () = event_due => {
                    let bytes = output.take();
                    self.write_log(bytes).await?;
                    let event = output.event(self.log.end());
                    self.record(event.into_iter().collect()).await?;
                    if let Err(error) = client.acknowledge(id, output.position()).await {
                        return Ok(End::Lost(error.to_string()));
                    }
                }
                more = stream.next(|stream, data| output.push(stream, data)) => match more {
                    Ok(true) => {
                        output.complete_to(stream.position(), stream.unfinished_bytes());
                        if output.is_worth_a_write() {
                            let bytes = output.take();
                            self.write_log(bytes).await?;
                        }
                        if self.log.end() > self.jobs.settings.log_max_bytes {
                            let most = show_bytes(self.jobs.settings.log_max_bytes);
                            let reason = format!("the job printed more than {most}; let it write to a file, or raise --log-max");
                            break Some((reason.clone(), Ending::Failed(reason)));
                        }
                    }
                    Ok(false) => break None,
                    Err(error) => return Ok(End::Lost(error.to_string())),
                },
                _ = check.tick() => {
                    if let Err(error) = client.renew_lease(self.jobs.settings.sandbox_lease_ms).await {
                        return Ok(End::Lost(error.to_string()));
                    }
                    if let Some(reason) = self.is_idle(client, &mut sign_of_life).await {
                        break Some((reason.clone(), Ending::Failed(reason)));
                    }
                }
            }
        };
        // What came before the end belongs to it; the event waits for the step's own.
        let bytes = output.take();
        self.write_log(bytes).await?;
        self.pending.extend(output.event(self.log.end()));
        if let Some((message, ending)) = ended {
            let _ = client.kill(id).await;
            return Ok(End::Stopped(StepResult::Error { message }, ending));
        }
        let outcome = match stream.finish() {
            Ok(status) => status.outcome,
            Err(error) => return Ok(End::Lost(error.to_string())),
        };
        Ok(match outcome {
            Some(ExecOutcome::Lost { reason }) => End::Lost(reason),
            Some(outcome) => {
                // Steps may be many, and the guest keeps results until it is told. Recorded first, then forgotten.
                if attempt.number < self.spec.work.steps().len() as u32 {
                    self.forget_later(client, id);
                }
                End::Done(StepResult::Exec { outcome })
            }
            None => End::Lost("the command's end was not reported".to_owned()),
        })
    }

    /// The result of the step before this one is recorded by the time another one ends.
    fn forget_later(&mut self, client: &Client, id: &ExecId) {
        if let Some(earlier) = self.unforgotten.replace(id.clone()) {
            let client = client.clone();
            tokio::spawn(async move { drop(client.forget(&earlier).await) });
        }
    }

    async fn is_idle(&self, client: &Client, sign: &mut SignOfLife) -> Option<String> {
        let limit_ms = self.spec.idle_timeout_ms;
        let cpu_ms = client.usage().await.map_or(sign.cpu_ms, |usage| usage.cpu_ms);
        if cpu_ms > sign.cpu_ms + PROGRESS_CPU_MS || self.log.end() != sign.log_end {
            *sign = SignOfLife { at: Instant::now(), cpu_ms, log_end: self.log.end() };
        }
        let is_idle = limit_ms > 0 && sign.at.elapsed() >= Duration::from_millis(limit_ms);
        is_idle.then(|| {
            let time = show_duration(limit_ms);
            format!("the job has neither printed anything nor used the processor for {time}; raise idle_timeout if it should wait")
        })
    }

    async fn file_step(&mut self, step: &Step) -> Ongoing<StepResult> {
        let failed = |message: String| StepResult::Error { message };
        let Ok(workspace) = self.workspace.try_clone() else {
            return Ok(failed("the workspace cannot be opened".to_owned()));
        };
        let cwd = step.cwd.clone().unwrap_or_default();
        let place = move |path: &str| {
            // Relative to the step's directory, which is relative to the workspace.
            let joined =
                if path.starts_with('/') || cwd.is_empty() { path.to_owned() } else { format!("{cwd}/{path}") };
            RelativePath::parse(joined.as_bytes()).map_err(|error| error.to_string())
        };
        let tool = step.tool.clone();
        let done = tokio::task::spawn_blocking(move || -> Result<(u64, Vec<u8>), String> {
            match tool {
                Tool::ReadFile { path } => {
                    let (content, stat) = workspace.read(&place(&path)?, None).map_err(|error| error.to_string())?;
                    let mut bytes = Vec::new();
                    content.take(READ_MAX_BYTES).read_to_end(&mut bytes).map_err(|error| error.to_string())?;
                    Ok((stat.size_bytes, bytes))
                }
                Tool::WriteFile { path, content } => {
                    let options = WriteOptions { parents: true, ..WriteOptions::default() };
                    let mut writer = workspace.write(&place(&path)?, options).map_err(|error| error.to_string())?;
                    std::io::Write::write_all(&mut writer, content.as_bytes()).map_err(|error| error.to_string())?;
                    let stat = writer.commit().map_err(|error| error.to_string())?;
                    Ok((stat.size_bytes, Vec::new()))
                }
                _ => Err("there is no display: this server has no desktop".to_owned()),
            }
        });
        match done.await.unwrap_or_else(|error| Err(error.to_string())) {
            Ok((size_bytes, shown)) => {
                let mut output = Output::new(self.steps_done + 1, 0, self.log.end());
                output.push(cofferdam_protocol::output::Stream::Stdout, &shown);
                output.complete_to(0, 0);
                let bytes = output.take();
                self.write_log(bytes).await?;
                self.pending.extend(output.event(self.log.end()));
                Ok(StepResult::File { size_bytes })
            }
            Err(message) => Ok(failed(message)),
        }
    }
}

/// When a step was last seen to do something.
struct SignOfLife {
    at: Instant,
    cpu_ms: u64,
    log_end: u64,
}
