//! How far a job had come, read from its events: all that a server knows that takes a job over.

use cofferdam_protocol::event::{Event, EventBody, StepResult};
use cofferdam_protocol::job::JobId;
use cofferdam_store::{EVENTS_MAX, Store, StoreError};

#[derive(Debug, Default, PartialEq)]
pub struct Progress {
    /// Where the log ends, as far as it is recorded.
    pub log_end: u64,
    pub step: StepProgress,
    /// Steps that failed and were allowed to.
    pub forgiven: u32,
}

#[derive(Debug, Default, PartialEq)]
pub enum StepProgress {
    #[default]
    NotStarted,
    /// This one was running.
    Running { step: u32, attempt: u32, started_ms: u64, log_from: u64, position: u64 },
    /// This one was the last to end.
    Finished { step: u32, is_ok: bool, result: StepResult, duration_ms: u64 },
}

impl Progress {
    pub async fn read(store: &dyn Store, id: &JobId) -> Result<Self, StoreError> {
        let mut progress = Self::default();
        let mut after = 0;
        loop {
            let events = store.events(id, after, EVENTS_MAX).await?;
            let Some(last) = events.last() else { return Ok(progress) };
            after = last.seq;
            events.iter().for_each(|event| progress.add(event));
        }
    }

    fn add(&mut self, event: &Event) {
        match &event.body {
            EventBody::StepStarted { step, attempt, log_from, .. } => {
                self.forgive();
                self.log_end = *log_from;
                self.step = StepProgress::Running {
                    step: *step,
                    attempt: *attempt,
                    started_ms: event.time_ms,
                    log_from: *log_from,
                    position: 0,
                };
            }
            EventBody::Output { position: reached, log_to, .. } => {
                self.log_end = *log_to;
                if let StepProgress::Running { position, .. } = &mut self.step {
                    *position = *reached;
                }
            }
            EventBody::StepFinished { step, ok, result, duration_ms, log_to, .. } => {
                self.log_end = *log_to;
                let (step, is_ok, result) = (*step, *ok, result.clone());
                self.step = StepProgress::Finished { step, is_ok, result, duration_ms: *duration_ms };
            }
            _ => {}
        }
    }

    /// Another step follows one that failed.
    fn forgive(&mut self) {
        self.forgiven += u32::from(matches!(self.step, StepProgress::Finished { is_ok: false, .. }));
    }
}
