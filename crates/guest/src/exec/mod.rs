//! Commands: started once per id, followed from any position of their output, their result kept until somebody has
//! acknowledged it. This file owns the table and the requests; [`run`] owns one command from start to end.
//!
//! ```text
//! POST   /exec/{id}?from=N[&keep]  start it, or attach to it; answers with its output and its exit
//! GET    /exec/{id}                its status        GET /exec   all of them
//! POST   /exec/{id}/stdin          the body goes to its standard input, which closes with the body
//! POST   /exec/{id}/signal         a signal number   POST /exec/{id}/kill  ends all its processes
//! POST   /exec/{id}/resize         the terminal's new size
//! POST   /exec/{id}/ack?to=N       output before N is not needed any more
//! DELETE /exec/{id}                its result is not needed any more
//! ```

mod buffers;
mod output;
pub mod refusals;
mod run;
mod tree;
mod watch;

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use bytes::Bytes;
use cofferdam_protocol::exec::{ExecId, ExecRequest, ExecStatus, TerminalSize};
use cofferdam_protocol::output::exit_header;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};

use crate::server::{Answer, Body, Inside, Problem, json, number_parameter, parameter, read_json};
use output::Next;
use refusals::Refusals;
use run::Exec;

/// Commands whose result is kept. Past this, somebody has to acknowledge results first.
const EXECS_MAX: usize = 4_096;

pub struct Execs {
    shared: Rc<Shared>,
    table: RefCell<HashMap<ExecId, Rc<Exec>>>,
}

/// What every command needs of the sandbox.
pub struct Shared {
    pub inside: Inside,
    pub refusals: Rc<Refusals>,
    /// One request to the spawner at a time: its answers carry no names.
    pub spawner_turn: tokio::sync::Mutex<()>,
    pub dead: RefCell<Option<String>>,
    pub memory_peak: Cell<u64>,
}

impl Execs {
    pub fn new(inside: Inside, refusals: Rc<Refusals>) -> Self {
        let shared = Shared {
            inside,
            refusals,
            spawner_turn: tokio::sync::Mutex::new(()),
            dead: RefCell::default(),
            memory_peak: Cell::default(),
        };
        Self { shared: Rc::new(shared), table: RefCell::default() }
    }

    pub fn memory_peak(&self) -> u64 {
        self.shared.memory_peak.get()
    }

    /// The sandbox is gone; whatever ran in it has ended for this reason.
    pub fn all_lost(&self, reason: &str) {
        *self.shared.dead.borrow_mut() = Some(reason.to_owned());
        for exec in self.table.borrow().values() {
            exec.lost(reason);
        }
    }

    pub async fn route(&self, rest: &str, request: Request<Incoming>) -> Answer {
        let (id, action) = rest.split_once('/').unwrap_or((rest, ""));
        if id.is_empty() && request.method() == Method::GET {
            let all: Vec<ExecStatus> = self.table.borrow().values().map(|exec| exec.status()).collect();
            return json(&all);
        }
        let id = ExecId::try_from(id.to_owned())
            .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        match (request.method().as_str(), action) {
            ("POST", "") => self.start_or_attach(id, request).await,
            ("GET", "") => json(&self.find(&id)?.status()),
            ("DELETE", "") => self.forget(&id),
            ("POST", "stdin") => feed(self.find(&id)?, request).await,
            ("POST", "signal") => {
                let signal: i32 = read_json(request).await?;
                done(self.find(&id)?.signal(signal))
            }
            ("POST", "kill") => {
                self.find(&id)?.kill().await;
                json(&())
            }
            ("POST", "resize") => {
                let size: TerminalSize = read_json(request).await?;
                size.validate().map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
                done(self.find(&id)?.resize(size))
            }
            ("POST", "ack") => {
                let position = number_parameter(&request, "to")?.unwrap_or(0);
                self.find(&id)?.log.acknowledge(position);
                json(&())
            }
            _ => Err(Problem::new(StatusCode::NOT_FOUND, "there is no such request for a command")),
        }
    }

    fn find(&self, id: &ExecId) -> Result<Rc<Exec>, Problem> {
        let missing = || Problem::new(StatusCode::NOT_FOUND, format!("there is no command with the id {id}"));
        self.table.borrow().get(id).cloned().ok_or_else(missing)
    }

    async fn start_or_attach(&self, id: ExecId, request: Request<Incoming>) -> Answer {
        let from = number_parameter(&request, "from")?.unwrap_or(0);
        let keep = parameter(&request, "keep").is_some();
        let asked: ExecRequest = read_json(request).await?;
        asked.validate().map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        let exec = self.find_or_start(id, asked)?;
        if from < exec.log.start() || from > exec.log.end() {
            let kept = format!("{} to {}", exec.log.start(), exec.log.end());
            return Err(Problem::new(StatusCode::RANGE_NOT_SATISFIABLE, format!("output is kept from {kept}")));
        }
        Ok(Response::new(Body::Output(Follow::new(exec, from, keep))))
    }

    /// The same id is the same run, whatever happened to whoever asked first.
    fn find_or_start(&self, id: ExecId, asked: ExecRequest) -> Result<Rc<Exec>, Problem> {
        let mut table = self.table.borrow_mut();
        if let Some(exec) = table.get(&id) {
            if exec.request != asked {
                let message = format!("the id {id} belongs to a different command; choose another");
                return Err(Problem::new(StatusCode::CONFLICT, message));
            }
            return Ok(exec.clone());
        }
        if table.len() >= EXECS_MAX {
            let message = "4096 results are waiting to be acknowledged; delete those that are no longer needed";
            return Err(Problem::new(StatusCode::TOO_MANY_REQUESTS, message));
        }
        let exec = Exec::start(self.shared.clone(), id.clone(), asked).map_err(|error| {
            Problem::new(StatusCode::INSUFFICIENT_STORAGE, format!("the command cannot be set up: {error}"))
        })?;
        table.insert(id, exec.clone());
        Ok(exec)
    }

    fn forget(&self, id: &ExecId) -> Answer {
        let exec = self.find(id)?;
        if exec.status().outcome.is_none() {
            return Err(Problem::new(StatusCode::CONFLICT, format!("{id} is still running; kill it first")));
        }
        self.table.borrow_mut().remove(id);
        json(&())
    }
}

fn done(result: io::Result<()>) -> Answer {
    result.map_err(|error| Problem::new(StatusCode::CONFLICT, error.to_string()))?;
    json(&())
}

/// Passes a body on to a command's standard input, at the command's pace.
async fn feed(exec: Rc<Exec>, request: Request<Incoming>) -> Answer {
    let mut body = request.into_body();
    let Some(mut stdin) = exec.take_stdin().await else {
        return Err(Problem::new(StatusCode::CONFLICT, "the command's standard input is closed, or in use"));
    };
    loop {
        let frame = tokio::select! {
            frame = body.frame() => frame,
            () = exec.ended() => return json(&()),
        };
        let Some(frame) = frame else { break };
        let frame = frame.map_err(|error| Problem::new(StatusCode::BAD_REQUEST, error.to_string()))?;
        if let Ok(data) = frame.into_data() {
            // A command that has closed its input, or ended, wants no more: not the sender's fault.
            tokio::select! {
                written = stdin.write_all(&data) => if written.is_err() { return json(&()) },
                () = exec.ended() => return json(&()),
            }
        }
    }
    // Dropping the writer closes a pipe; a terminal stays open, as a person's does.
    json(&())
}

/// A body that follows a command's output to its end.
pub struct Follow {
    exec: Rc<Exec>,
    position: u64,
    /// Whether output stays until it is acknowledged, or goes once it is sent.
    keep: bool,
    said_exit: bool,
    waiting: Option<Pin<Box<dyn Future<Output = ()>>>>,
}

impl Follow {
    fn new(exec: Rc<Exec>, position: u64, keep: bool) -> Self {
        let readers = &exec.log.readers;
        readers.set(readers.get() + usize::from(!keep));
        Self { exec, position, keep, said_exit: false, waiting: None }
    }
}

impl Drop for Follow {
    fn drop(&mut self) {
        let readers = &self.exec.log.readers;
        readers.set(readers.get() - usize::from(!self.keep));
    }
}

impl Follow {
    pub fn poll_chunk(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        let this = self;
        loop {
            if let Some(waiting) = &mut this.waiting {
                if waiting.as_mut().poll(context).is_pending() {
                    return Poll::Pending;
                }
                this.waiting = None;
            }
            if !this.keep {
                this.exec.log.acknowledge(this.position);
            }
            // Registered before looking, so that what is appended in between is not missed.
            let exec = this.exec.clone();
            let mut grew = Box::pin(async move { exec.log.grew.notified().await });
            let registered = grew.as_mut().poll(context).is_ready();
            match this.exec.log.read(this.position)? {
                Next::Chunk(chunk) => {
                    this.position += chunk.len() as u64;
                    return Poll::Ready(Some(Ok(chunk)));
                }
                Next::Wait if registered => {}
                Next::Wait => {
                    this.waiting = Some(grew);
                    return Poll::Pending;
                }
                Next::End if this.said_exit => return Poll::Ready(None),
                Next::End => {
                    this.said_exit = true;
                    let status = serde_json::to_vec(&this.exec.status()).unwrap_or_default();
                    let mut frame = Vec::with_capacity(status.len() + 5);
                    frame.extend_from_slice(&exit_header(status.len()));
                    frame.extend_from_slice(&status);
                    return Poll::Ready(Some(Ok(frame.into())));
                }
            }
        }
    }
}
