//! Connections that only read. They see what is committed and nothing else, and never wait for the writer.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::open;
use crate::StoreError;

/// Reads at once. More would only compete for the same processor and disk; the others wait their turn.
const READERS_MAX: usize = 4;

#[derive(Debug)]
pub(super) struct Readers {
    path: PathBuf,
    /// Opened when first needed, kept from then on.
    idle: Arc<Mutex<Vec<Connection>>>,
    turns: Arc<Semaphore>,
}

impl Readers {
    pub(super) fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), idle: Arc::default(), turns: Arc::new(Semaphore::new(READERS_MAX)) }
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let turn = self.turns.clone().acquire_owned().await.map_err(|_| StoreError::Closed)?;
        let (path, idle) = (self.path.clone(), self.idle.clone());
        let reading = tokio::task::spawn_blocking(move || {
            let kept = lock(&idle).pop();
            let connection = kept.map_or_else(|| open::reader(&path), Ok)?;
            let answer = read(&connection);
            lock(&idle).push(connection);
            drop(turn);
            answer
        });
        reading.await.unwrap_or_else(|error| match error.try_into_panic() {
            Ok(panic) => std::panic::resume_unwind(panic),
            // The runtime is shutting down.
            Err(_) => Err(StoreError::Closed),
        })
    }

    /// The writer can then be the last to leave, and tidy up.
    pub(super) fn close(&self) {
        self.turns.close();
        lock(&self.idle).clear();
    }
}

fn lock(idle: &Mutex<Vec<Connection>>) -> MutexGuard<'_, Vec<Connection>> {
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
