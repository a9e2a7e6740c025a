//! The one thread that writes. Whatever is waiting when it has a moment is committed together, so that a sync of the
//! disk is shared by all who wait for it. What the changes are is not its business.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use cofferdam_protocol::job::JobId;
use rusqlite::Connection;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::write::Batch;
use crate::rules::Update;
use crate::{CommitHook, StoreError};

/// Requests that share a commit. The first waits for all of them: at some tens of microseconds each, about as long as
/// for a slow disk's sync.
const BATCH_MAX: usize = 256;
/// Requests that may wait for the thread; further callers wait outside. Bounds the memory of a stalled disk.
const WAITING_MAX: usize = 4_096;
/// Marks as mirrored wait this long for a commit to ride along with before they get one of their own,
const MIRRORED_IDLE: Duration = Duration::from_millis(200);
/// or until there are this many.
const MIRRORED_MAX: usize = 1_000;

/// The way to the thread. [`Writer::close`] lets it finish what it was given.
#[derive(Debug)]
pub(super) struct Writer {
    messages: Option<Sender<Message>>,
    room: Arc<Semaphore>,
    thread: Option<JoinHandle<()>>,
}

impl Writer {
    pub(super) fn start(connection: Connection, hook: CommitHook) -> Result<Self, StoreError> {
        let (messages, inbox) = mpsc::channel();
        let state = State { connection, inbox, hook, mirrored: Vec::new() };
        let thread = thread::Builder::new()
            .name("store-writer".to_owned())
            .spawn(move || state.run())
            .map_err(|error| StoreError::Other(format!("its thread could not be started: {error}")))?;
        Ok(Self { messages: Some(messages), room: Arc::new(Semaphore::new(WAITING_MAX)), thread: Some(thread) })
    }

    /// Does `work` in the next transaction; returns when it is durable. It is done even if the caller stops waiting.
    pub(super) async fn write<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Batch<'_>) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let room = self.room.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (answer, answered) = oneshot::channel();
        let step = Step::Waiting(work);
        self.send(Message::Request(Box::new(Work { step, answer, _room: room })))?;
        answered.await.unwrap_or(Err(StoreError::Closed))
    }

    pub(super) async fn set_mirrored(&self, id: JobId, last_seq: u64) -> Result<(), StoreError> {
        let room = self.room.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        self.send(Message::Mirrored { id, last_seq, room })
    }

    fn send(&self, message: Message) -> Result<(), StoreError> {
        let messages = self.messages.as_ref().ok_or(StoreError::Closed)?;
        messages.send(message).map_err(|_| StoreError::Closed)
    }

    pub(super) fn close(&mut self) {
        self.messages = None;
        if let Some(thread) = self.thread.take() {
            // Its panic was reported when it happened.
            let _ = thread.join();
        }
    }
}

enum Message {
    Request(Box<dyn Request>),
    Mirrored { id: JobId, last_seq: u64, room: OwnedSemaphorePermit },
}

/// A change whose answer may be of any type.
trait Request: Send {
    /// Gives the reason if it is refused; the request keeps it for its answer too.
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError>;
    /// `failure`: nothing of the batch has happened.
    fn answer(self: Box<Self>, failure: Option<&StoreError>);
}

struct Work<F, T> {
    step: Step<F, T>,
    answer: oneshot::Sender<Result<T, StoreError>>,
    _room: OwnedSemaphorePermit,
}

enum Step<F, T> {
    Waiting(F),
    Applied(Result<T, StoreError>),
}

impl<F, T> Request for Work<F, T>
where
    F: FnOnce(&mut Batch<'_>) -> Result<T, StoreError> + Send,
    T: Send,
{
    fn apply(&mut self, batch: &mut Batch<'_>) -> Result<(), StoreError> {
        let step = std::mem::replace(&mut self.step, Step::Applied(Err(StoreError::Closed)));
        let outcome = match step {
            Step::Waiting(work) => work(batch),
            Step::Applied(outcome) => outcome,
        };
        let refusal = outcome.as_ref().err().cloned();
        self.step = Step::Applied(outcome);
        refusal.map_or(Ok(()), Err)
    }

    fn answer(self: Box<Self>, failure: Option<&StoreError>) {
        let outcome = match (failure, self.step) {
            (Some(failure), _) => Err(failure.clone()),
            (None, Step::Applied(outcome)) => outcome,
            (None, Step::Waiting(_)) => Err(StoreError::Closed),
        };
        // Nobody may be waiting any more.
        let _ = self.answer.send(outcome);
    }
}

struct State {
    connection: Connection,
    inbox: Receiver<Message>,
    hook: CommitHook,
    mirrored: Vec<(JobId, u64)>,
}

impl State {
    fn run(mut self) {
        loop {
            let message = if self.mirrored.is_empty() {
                self.inbox.recv().map_err(|_| RecvTimeoutError::Disconnected)
            } else {
                self.inbox.recv_timeout(MIRRORED_IDLE)
            };
            match message {
                Ok(Message::Request(request)) => self.batch(vec![request]),
                Ok(Message::Mirrored { id, last_seq, room }) => {
                    drop(room);
                    self.mirrored.push((id, last_seq));
                    if self.mirrored.len() >= MIRRORED_MAX {
                        self.batch(Vec::new());
                    }
                }
                Err(RecvTimeoutError::Timeout) => self.batch(Vec::new()),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        if !self.mirrored.is_empty() {
            self.batch(Vec::new());
        }
        // The next opening does what could not be done here.
        let _ = self.connection.pragma_update(None, "wal_checkpoint", "truncate");
    }

    fn batch(&mut self, mut requests: Vec<Box<dyn Request>>) {
        match self.commit(&mut requests) {
            Ok(told) => {
                told.iter().for_each(|update| (self.hook)(&update.job, &update.events));
                requests.into_iter().for_each(|request| request.answer(None));
            }
            Err(failure) => {
                if !self.connection.is_autocommit() {
                    // If even this fails, so does the next BEGIN, and says why.
                    let _ = self.connection.execute_batch("ROLLBACK");
                }
                requests.into_iter().for_each(|request| request.answer(Some(&failure)));
            }
        }
    }

    /// Applies `requests`, then what else is waiting, which joins them.
    fn commit(&mut self, requests: &mut Vec<Box<dyn Request>>) -> Result<Vec<Update>, StoreError> {
        self.connection.prepare_cached("BEGIN IMMEDIATE")?.execute(())?;
        let mut batch = Batch { connection: &self.connection, told: Vec::new() };
        for (id, last_seq) in std::mem::take(&mut self.mirrored) {
            batch.set_mirrored(&id, last_seq)?;
        }
        let mut applied = 0;
        loop {
            if applied == requests.len() {
                if applied == BATCH_MAX {
                    break;
                }
                match self.inbox.try_recv() {
                    Ok(Message::Request(request)) => requests.push(request),
                    // It rides along with the next commit.
                    Ok(Message::Mirrored { id, last_seq, room }) => {
                        drop(room);
                        self.mirrored.push((id, last_seq));
                        continue;
                    }
                    Err(_) => break,
                }
            }
            apply(&mut batch, requests[applied].as_mut())?;
            applied += 1;
        }
        self.connection.prepare_cached("COMMIT")?.execute(())?;
        Ok(batch.told)
    }
}

/// What is refused leaves no trace; the others go on.
fn apply(batch: &mut Batch<'_>, request: &mut dyn Request) -> Result<(), StoreError> {
    let connection = batch.connection;
    connection.prepare_cached("SAVEPOINT request")?.execute(())?;
    let told = batch.told.len();
    if let Err(refusal) = request.apply(batch) {
        // Out of space or memory, SQLite may have given up the whole transaction, and with it the requests before.
        if connection.is_autocommit() {
            return Err(refusal);
        }
        batch.told.truncate(told);
        connection.prepare_cached("ROLLBACK TO request")?.execute(())?;
    }
    connection.prepare_cached("RELEASE request")?.execute(())?;
    Ok(())
}
