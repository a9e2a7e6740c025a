//! The events of one job as a stream of server-sent events. A connection that breaks is made again behind the last
//! event that was seen, so that a reader gets each event once, whatever happens to the server.

use reqwest::{Method, Response};

use super::{Client, Patience};
use crate::exec::Failure;
use crate::exit_code;

/// An event carries 4 KiB of output at most; what is larger than this is no event.
const EVENT_MAX_BYTES: usize = 1 << 20;

/// One event as it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawEvent {
    pub seq: u64,
    pub kind: String,
    /// JSON.
    pub data: String,
}

pub struct EventStream<'a> {
    client: &'a Client,
    job: String,
    after: u64,
    response: Option<Response>,
    parser: Parser,
    patience: Patience<'a>,
    ended: bool,
}

impl<'a> EventStream<'a> {
    /// The events behind number `after`; 0 for all.
    pub fn new(client: &'a Client, job: &str, after: u64) -> Self {
        Self {
            client,
            job: job.to_owned(),
            after,
            response: None,
            parser: Parser::default(),
            patience: Patience::for_stream(client),
            ended: false,
        }
    }

    /// The next event, or nothing after the one that tells of the job's end.
    pub async fn next(&mut self) -> Result<Option<RawEvent>, Failure> {
        loop {
            while let Some(event) = self.parser.next()? {
                // What was sent twice around a break.
                if event.seq > self.after {
                    self.after = event.seq;
                    self.ended |= event.kind == "ended";
                    return Ok(Some(event));
                }
            }
            if self.ended {
                return Ok(None);
            }
            if let Err(error) = self.read().await {
                self.response = None;
                self.parser = Parser::default();
                self.patience.wait(error).await?;
            }
        }
    }

    async fn read(&mut self) -> Result<(), Failure> {
        let response = match &mut self.response {
            Some(response) => response,
            missing => {
                let request = self.client.request(Method::GET, &format!("/jobs/{}/events", self.job));
                let request = request.header("Last-Event-ID", self.after.to_string());
                missing.insert(self.client.send(request).await?)
            }
        };
        match response.chunk().await {
            Ok(Some(bytes)) => {
                self.patience.renew();
                self.parser.feed(&bytes);
                Ok(())
            }
            Ok(None) => Err(Failure::new(
                exit_code::SERVER,
                "the server has closed the stream; start one with: cofferdam serve",
            )),
            Err(error) => Err(self.client.unreachable(&error)),
        }
    }
}

/// Lines of the stream, put together to events.
#[derive(Debug, Default)]
struct Parser {
    bytes: Vec<u8>,
    /// How much of it has been read.
    read: usize,
}

impl Parser {
    fn feed(&mut self, bytes: &[u8]) {
        self.bytes.drain(..self.read);
        self.read = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next whole event; comments and events without data are passed over.
    fn next(&mut self) -> Result<Option<RawEvent>, Failure> {
        let (mut seq, mut kind, mut data) = (0, String::new(), None::<String>);
        let mut position = self.read;
        while let Some(length) = self.bytes[position..].iter().position(|byte| *byte == b'\n') {
            let line = String::from_utf8_lossy(&self.bytes[position..position + length]);
            let line = line.trim_end_matches('\r');
            position += length + 1;
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value);
            match name {
                "id" => seq = value.parse().unwrap_or(0),
                "event" => value.clone_into(&mut kind),
                "data" => match &mut data {
                    Some(data) => {
                        data.push('\n');
                        data.push_str(value);
                    }
                    None => data = Some(value.to_owned()),
                },
                "" if line.is_empty() => {
                    self.read = position;
                    if let Some(data) = data.take() {
                        return Ok(Some(RawEvent { seq, kind, data }));
                    }
                    (seq, kind) = (0, String::new());
                }
                _ => {}
            }
        }
        if self.bytes.len() - self.read > EVENT_MAX_BYTES {
            return Err(Failure::new(
                exit_code::REFUSED,
                "the server sent an event larger than 1 MiB; is it Cofferdam's?",
            ));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_are_put_together_from_pieces_of_any_size() {
        let stream = ": hello\n\nid: 1\nevent: scheduled\ndata: {\"seq\":1}\n\n: still here\n\nid:2\r\nevent:ended\r\ndata:{\r\ndata:}\r\n\r\nid: 3\ndata: cut";
        let event = |seq, kind: &str, data: &str| RawEvent { seq, kind: kind.to_owned(), data: data.to_owned() };
        for size in 1..stream.len() {
            let mut parser = Parser::default();
            let mut events = Vec::new();
            for piece in stream.as_bytes().chunks(size) {
                parser.feed(piece);
                while let Some(event) = parser.next().ok().unwrap() {
                    events.push(event);
                }
            }
            assert_eq!(events, [event(1, "scheduled", "{\"seq\":1}"), event(2, "ended", "{\n}")], "{size}");
        }
    }

    #[test]
    fn an_event_without_end_is_refused() {
        let mut parser = Parser::default();
        parser.feed(b"data: ");
        parser.feed(&vec![b'x'; EVENT_MAX_BYTES]);
        assert!(parser.next().is_err());
    }
}
