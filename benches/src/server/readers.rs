//! Many readers of one busy job: whether each gets every event once and in order, how late, and what they cost.

use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::http::{Connection, get, post};
use super::load::block_on;
use super::process::{Memory, ServerProcess, cofferdam, fresh};
use super::{CpuEach, Setup, metrics};
use crate::stats::{Samples, Table, Unit};

const LINE_INTERVAL: Duration = Duration::from_millis(20);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Readers {
    pub asked: usize,
    /// Those that got every event and every line exactly once, in order.
    pub complete: usize,
    pub table: Table,
}

/// What a reader got, and when: how many bytes were there at which time.
#[derive(Default)]
struct Received {
    bytes: Vec<u8>,
    arrivals: Vec<(usize, u64)>,
}

pub fn measure(setup: &Setup) -> Result<Readers> {
    let asked = setup.sized(1000, 100);
    let lines = setup.sized(500, 100);
    let data = fresh(setup.scratch());
    let server = cofferdam(&setup.program, &data, &[])?;
    server.rest()?;
    server.forget_peak()?;
    let before = server.memory();
    let cpu = server.cpu();
    let (received, connected) = block_on(follow(&server, asked, lines))?;
    let cpu = server.cpu() - cpu;
    server.rest()?;
    let after = server.memory();
    server.stop()?;

    let mut lags = Samples::default();
    let counts: Vec<Option<usize>> = received.iter().map(|received| check(received, lines, &mut lags)).collect();
    let complete = counts.iter().flatten().count();
    let events: usize = counts.iter().flatten().sum();
    let row = |name: &str, value| vec![name.to_owned(), value];
    let bytes = |value| Unit::Bytes.show(value);
    let table = Table {
        title: "Readers of one busy job",
        note: format!(
            "{asked} streams of server-sent events, opened while the job runs; it prints a numbered line every \
             {} ms, {lines} of them, and the server makes at most ten events a second of that. The delay is from the \
             event's own time, before it was durable, to its arrival at the reader.",
            LINE_INTERVAL.as_millis()
        ),
        head: &["", ""],
        rows: vec![
            row("got every event once and in order", format!("{complete} of {asked}")),
            row("events delivered", events.to_string()),
            row("delay, p50", Unit::Seconds.show(lags.p50())),
            row("delay, p99", Unit::Seconds.show(lags.p99())),
            row("processor time of the server, each event delivered", CpuEach(cpu / events.max(1) as f64).to_string()),
            row("memory of the server before", bytes(before.resident)),
            row("with all readers", bytes(connected.resident)),
            row("at its peak", bytes(after.peak)),
            row("after the last had gone", bytes(after.resident)),
            row("peak, each reader", bytes((after.peak - before.resident) / asked as f64)),
        ],
    };
    Ok(Readers { asked, complete, table })
}

async fn follow(server: &ServerProcess, asked: usize, lines: usize) -> Result<(Vec<Received>, Memory)> {
    let mut connection = Connection::open(server.address).await?;
    let seconds = LINE_INTERVAL.as_secs_f64();
    let code = format!("import time\nfor n in range({lines}): print(n, flush=True); time.sleep({seconds})");
    let body = serde_json::json!({ "steps": [{ "tool": "python", "code": code }] }).to_string();
    let job = connection.ask_json(&post("/schedule", &body)).await?;
    let request = get(&format!("/jobs/{}/events", job["job_id"].as_str().context("a job has an id")?));
    let mut readers = Vec::new();
    for _ in 0..asked {
        let (stream, request) = (Connection::open(server.address).await?, request.clone());
        readers.push(tokio::task::spawn_local(read(stream, request)));
    }
    metrics::wait_for(&mut connection, metrics::READERS, asked as f64, CONNECT_TIMEOUT).await?;
    let connected = server.memory();
    let mut received = Vec::new();
    for reader in readers {
        received.push(reader.await??);
    }
    let failed = metrics::read(&mut connection, &metrics::jobs_in("failed")).await?;
    ensure!(failed == 0.0, "the job that was to be read failed");
    Ok((received, connected))
}

async fn read(stream: Connection, request: Vec<u8>) -> Result<Received> {
    let mut received = Received::default();
    stream
        .follow(&request, |bytes| {
            received.bytes.extend_from_slice(bytes);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
            received.arrivals.push((received.bytes.len(), now as u64));
            ControlFlow::Continue(())
        })
        .await?;
    Ok(received)
}

/// How many events, if they are numbered without gaps, end with the job's end and tell every line once.
fn check(received: &Received, lines: usize, lags: &mut Samples) -> Option<usize> {
    let text = std::str::from_utf8(&received.bytes).ok()?;
    let connected_ms = received.arrivals.first()?.1;
    let (mut count, mut end, mut output, mut last) = (0, 0, String::new(), String::new());
    for frame in text.split_inclusive("\n\n") {
        end += frame.len();
        // A comment that keeps the connection alive.
        if frame.starts_with(':') {
            continue;
        }
        let data = frame.lines().find_map(|line| line.strip_prefix("data: "))?;
        let event: Value = serde_json::from_str(data).ok()?;
        count += 1;
        if event["seq"].as_u64()? != count || !frame.starts_with(&format!("id: {count}\n")) {
            return None;
        }
        for part in event["excerpt"].as_array().into_iter().flatten() {
            output.push_str(part["text"].as_str()?);
        }
        event["type"].as_str()?.clone_into(&mut last);
        let arrival = received.arrivals.iter().find(|(bytes, _)| *bytes >= end)?.1;
        let time_ms = event["time_ms"].as_u64()?;
        // What had happened before the reader came was not delayed.
        if time_ms > connected_ms {
            lags.push(arrival.saturating_sub(time_ms) as f64 / 1e3);
        }
    }
    let expected: String = (0..lines).map(|number| format!("{number}\n")).collect();
    (last == "ended" && output == expected).then_some(count as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(frames: &[&str]) -> Received {
        let bytes = frames.concat().into_bytes();
        Received { arrivals: vec![(bytes.len(), 1)], bytes }
    }

    #[test]
    fn a_reader_that_missed_or_saw_twice_is_noticed() {
        let output = "id: 1\nevent: output\ndata: {\"seq\":1,\"time_ms\":1,\"type\":\"output\",\"excerpt\":[{\"text\":\"0\\n1\\n\"}]}\n\n";
        let ended = "id: 2\nevent: ended\ndata: {\"seq\":2,\"time_ms\":1,\"type\":\"ended\"}\n\n";
        let count = |frames: &[&str]| check(&received(frames), 2, &mut Samples::default());
        assert_eq!(count(&[output, ":\n\n", ended]), Some(2));
        assert_eq!(count(&[output]), None, "its end is missing");
        assert_eq!(count(&[ended]), None, "its beginning is missing");
        assert_eq!(count(&[output, output, ended]), None, "an event came twice");
    }
}
