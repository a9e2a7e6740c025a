//! Output on its way from a command to the log and into events. Knows which of the bytes that have come belong to
//! complete frames: only those are written, since only behind them can another server resume.

use std::collections::VecDeque;
use std::time::Duration;

use cofferdam_protocol::event::{EXCERPT_MAX_BYTES, EventBody, OutputPart, OutputStream};
use cofferdam_protocol::output::Stream;
use tokio::time::Instant;

/// How often a job that prints without pause makes an event.
const EVENT_INTERVAL: Duration = Duration::from_millis(100);
/// How often after many: a job that prints for days shall not fill the store.
const LATER_EVENT_INTERVAL: Duration = Duration::from_secs(1);
const EARLY_EVENTS: u32 = 600;
/// Bytes that are worth a write of their own.
const WRITE_BYTES: usize = 256 * 1024;
/// The guest keeps what is not acknowledged, and stops the command when it has kept 64 MiB; an acknowledgement
/// follows an event.
const UNACKNOWLEDGED_MAX_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub struct Output {
    step: u32,
    /// Bytes that are not in the log yet, and which stream they came from.
    buffer: Vec<u8>,
    pieces: VecDeque<(Stream, usize)>,
    /// How many of them belong to complete frames, and the guest's position behind those.
    complete: usize,
    complete_position: u64,
    /// What the next event will tell: it begins here in the log.
    event_from: u64,
    position: u64,
    excerpt: Vec<OutputPart>,
    excerpt_bytes: usize,
    events: u32,
    last_event: Option<Instant>,
}

impl Output {
    pub fn new(step: u32, position: u64, log_end: u64) -> Self {
        Self {
            step,
            buffer: Vec::new(),
            pieces: VecDeque::new(),
            complete: 0,
            complete_position: position,
            event_from: log_end,
            position,
            excerpt: Vec::new(),
            excerpt_bytes: 0,
            events: 0,
            last_event: None,
        }
    }

    pub fn push(&mut self, stream: Stream, data: &[u8]) {
        self.buffer.extend_from_slice(data);
        match self.pieces.back_mut() {
            Some((last, length)) if *last == stream => *length += data.len(),
            _ => self.pieces.push_back((stream, data.len())),
        }
    }

    /// Called after every `push`: the guest's position behind the last complete frame, and what came of the next.
    pub fn complete_to(&mut self, position: u64, unfinished_bytes: usize) {
        self.complete = self.buffer.len() - unfinished_bytes;
        self.complete_position = position;
    }

    pub fn is_worth_a_write(&self) -> bool {
        self.complete >= WRITE_BYTES
    }

    /// Takes what can be written to the log.
    pub fn take(&mut self) -> Vec<u8> {
        let rest = self.buffer.split_off(self.complete);
        let taken = std::mem::replace(&mut self.buffer, rest);
        self.complete = 0;
        self.position = self.complete_position;
        let mut from = 0;
        while from < taken.len() {
            let (stream, length) = self.pieces[0];
            let used = length.min(taken.len() - from);
            self.add_to_excerpt(stream, &taken[from..from + used]);
            from += used;
            if used == length {
                self.pieces.pop_front();
            } else {
                self.pieces[0].1 -= used;
            }
        }
        taken
    }

    fn add_to_excerpt(&mut self, stream: Stream, data: &[u8]) {
        let data = &data[..data.len().min(EXCERPT_MAX_BYTES - self.excerpt_bytes)];
        if data.is_empty() {
            return;
        }
        self.excerpt_bytes += data.len();
        let stream = match stream {
            Stream::Stdout => OutputStream::Stdout,
            Stream::Stderr => OutputStream::Stderr,
        };
        let text = String::from_utf8_lossy(data);
        match self.excerpt.last_mut() {
            Some(last) if last.stream == stream => last.text.push_str(&text),
            _ => self.excerpt.push(OutputPart { stream, text: text.into_owned() }),
        }
    }

    /// When the next event should be made; none if there is nothing to tell. `log_end` is what has been written.
    pub fn event_due(&self, log_end: u64) -> Option<Instant> {
        if self.complete == 0 && log_end == self.event_from {
            return None;
        }
        let interval = if self.events < EARLY_EVENTS { EVENT_INTERVAL } else { LATER_EVENT_INTERVAL };
        let is_urgent = log_end - self.event_from >= UNACKNOWLEDGED_MAX_BYTES;
        Some(self.last_event.filter(|_| !is_urgent).map_or_else(Instant::now, |last| last + interval))
    }

    /// The event for all that has been written since the last one.
    pub fn event(&mut self, log_end: u64) -> Option<EventBody> {
        if log_end == self.event_from {
            return None;
        }
        let event = EventBody::Output {
            step: self.step,
            position: self.position,
            log_from: self.event_from,
            log_to: log_end,
            excerpt: std::mem::take(&mut self.excerpt),
            omitted_bytes: log_end - self.event_from - self.excerpt_bytes as u64,
        };
        self.event_from = log_end;
        self.excerpt_bytes = 0;
        self.events += 1;
        self.last_event = Some(Instant::now());
        Some(event)
    }

    /// Where the guest may forget what came before, once the last event is durable.
    pub fn position(&self) -> u64 {
        self.position
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_complete_frames_are_taken_and_told() {
        let mut output = Output::new(1, 0, 100);
        output.push(Stream::Stdout, b"one\n");
        output.push(Stream::Stderr, b"two\n");
        output.push(Stream::Stdout, b"thr");
        output.complete_to(18, 3);
        assert_eq!(output.take(), b"one\ntwo\n");
        let part = |stream, text: &str| OutputPart { stream, text: text.to_owned() };
        assert_eq!(
            output.event(108),
            Some(EventBody::Output {
                step: 1,
                position: 18,
                log_from: 100,
                log_to: 108,
                excerpt: vec![part(OutputStream::Stdout, "one\n"), part(OutputStream::Stderr, "two\n")],
                omitted_bytes: 0,
            })
        );
        assert_eq!(output.event(108), None);
        output.push(Stream::Stdout, &[b'e'; 10_000]);
        output.complete_to(10_031, 0);
        assert_eq!(output.take().len(), 10_003);
        let Some(EventBody::Output { position: 10_031, log_from: 108, omitted_bytes, .. }) = output.event(10_111)
        else {
            panic!("there is an event")
        };
        assert_eq!(omitted_bytes, 10_003 - EXCERPT_MAX_BYTES as u64);
    }
}
