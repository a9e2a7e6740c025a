//! As much of HTTP/1.1 as the loads need: a prepared request goes out, an answer comes back by its length or in chunks.
//! Small on purpose: whatever the client spends, it takes from the cores that the server works on.

use std::net::SocketAddr;
use std::ops::ControlFlow;

use anyhow::{Context, Result, bail, ensure};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// Enough for every answer but a download, which is read in pieces of this size.
const BUFFER_BYTES: usize = 64 * 1024;

pub fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

pub fn post(path: &str, body: &str) -> Vec<u8> {
    format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    )
    .into_bytes()
}

/// A job of one step that is a shell command.
pub fn schedule(command: &str) -> Vec<u8> {
    post("/schedule", &serde_json::json!({ "steps": [{ "tool": "shell", "command": command }] }).to_string())
}

/// A connection that is kept from one answer to the next.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

#[derive(Debug, PartialEq, Eq)]
struct Head {
    status: u16,
    /// Absent: the body comes in chunks.
    length: Option<usize>,
    /// Where the body begins.
    end: usize,
}

impl Connection {
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await.with_context(|| format!("connecting to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: Vec::new() })
    }

    /// The body of an answer that succeeds.
    pub async fn ask(&mut self, request: &[u8]) -> Result<&[u8]> {
        let head = self.send(request).await?;
        let length = head.length.context("the answer's length is not given")?;
        while self.buffer.len() < head.end + length {
            self.fill().await?;
        }
        let body = &self.buffer[head.end..head.end + length];
        ensure!((200..300).contains(&head.status), "{}: {}", head.status, String::from_utf8_lossy(body));
        Ok(body)
    }

    pub async fn ask_json(&mut self, request: &[u8]) -> Result<serde_json::Value> {
        Ok(serde_json::from_slice(self.ask(request).await?)?)
    }

    /// Gives the pieces of a body that comes in chunks to `take`, until that has enough or the body has ended.
    pub async fn follow(mut self, request: &[u8], mut take: impl FnMut(&[u8]) -> ControlFlow<()>) -> Result<()> {
        let head = self.send(request).await?;
        ensure!(head.status == 200 && head.length.is_none(), "{}", String::from_utf8_lossy(&self.buffer));
        self.buffer.drain(..head.end);
        loop {
            let line = loop {
                match self.buffer.windows(2).position(|pair| pair == b"\r\n") {
                    Some(line) => break line,
                    None => self.fill().await?,
                }
            };
            let mut left = usize::from_str_radix(std::str::from_utf8(&self.buffer[..line])?, 16)?;
            if left == 0 {
                return Ok(());
            }
            self.buffer.drain(..line + 2);
            while left > 0 {
                if self.buffer.is_empty() {
                    self.fill().await?;
                }
                let part = left.min(self.buffer.len());
                if take(&self.buffer[..part]).is_break() {
                    return Ok(());
                }
                self.buffer.drain(..part);
                left -= part;
            }
            while self.buffer.len() < 2 {
                self.fill().await?;
            }
            self.buffer.drain(..2);
        }
    }

    async fn send(&mut self, request: &[u8]) -> Result<Head> {
        self.stream.write_all(request).await?;
        self.buffer.clear();
        loop {
            self.fill().await?;
            if let Some(head) = parse_head(&self.buffer)? {
                return Ok(head);
            }
        }
    }

    async fn fill(&mut self) -> Result<()> {
        if self.buffer.is_empty() {
            // All of it, once there is nothing to keep; readers of events are many and get small pieces.
            self.buffer.reserve(if self.buffer.capacity() > 0 { BUFFER_BYTES } else { 2048 });
        }
        ensure!(self.stream.read_buf(&mut self.buffer).await? > 0, "the server hung up");
        Ok(())
    }
}

fn parse_head(bytes: &[u8]) -> Result<Option<Head>> {
    let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") else { return Ok(None) };
    let text = std::str::from_utf8(&bytes[..end])?;
    let mut lines = text.split("\r\n");
    let Some(status) = lines.next().and_then(|line| line.split(' ').nth(1)?.parse().ok()) else {
        bail!("not an answer: {text}");
    };
    let length =
        lines.filter_map(|line| line.split_once(':')).find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    let length = length.map(|(_, value)| value.trim().parse()).transpose()?;
    Ok(Some(Head { status, length, end: end + 4 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        let whole = b"HTTP/1.1 202 Accepted\r\nContent-Length: 12\r\n\r\n{";
        assert_eq!(parse_head(&whole[..30]).unwrap(), None);
        assert_eq!(parse_head(whole).unwrap(), Some(Head { status: 202, length: Some(12), end: 45 }));
        let chunked = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        assert_eq!(parse_head(chunked).unwrap(), Some(Head { status: 200, length: None, end: 47 }));
    }
}
