//! A terminal over a WebSocket.

use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream, connect_async};

use crate::support::{Fixture, PATIENCE, eventually, find_process};

struct Terminal {
    socket: WebSocketStream<MaybeTlsStream<TcpStream>>,
    seen: String,
}

impl Terminal {
    async fn open(fixture: &Fixture, id: &str, query: &str) -> Self {
        let url = format!("ws://{}/sandboxes/{id}/pty{query}", fixture.authority());
        let (socket, _) = connect_async(url).await.unwrap();
        Self { socket, seen: String::new() }
    }

    async fn type_text(&mut self, text: &str) {
        self.socket.send(Message::binary(text.as_bytes().to_vec())).await.unwrap();
    }

    /// Reads until this has been shown, and goes on behind it.
    async fn shows(&mut self, text: &str) {
        loop {
            if let Some(at) = self.seen.find(text) {
                self.seen.drain(..at + text.len());
                return;
            }
            match self.next().await {
                Message::Binary(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                other => panic!("{text} was not shown but {other:?} came, after {}", self.seen),
            }
        }
    }

    /// Reads the rest, up to the message that says how the command ended.
    async fn end(mut self) -> (String, Value) {
        loop {
            match self.next().await {
                Message::Binary(bytes) => self.seen.push_str(&String::from_utf8_lossy(&bytes)),
                Message::Text(text) => {
                    assert!(matches!(self.next().await, Message::Close(_)));
                    return (self.seen, serde_json::from_str(&text).unwrap());
                }
                _ => {}
            }
        }
    }

    async fn next(&mut self) -> Message {
        match tokio::time::timeout(PATIENCE, self.socket.next()).await {
            Ok(message) => message.unwrap().unwrap(),
            Err(_) => panic!("nothing came after {}", self.seen),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shell_prompts_takes_what_is_typed_and_says_how_it_ended() {
    let fixture = Fixture::start().await;
    let id = fixture.sandbox(json!({})).await;
    let mut terminal = Terminal::open(&fixture, &id, "?rows=30&columns=90").await;
    terminal.shows("$ ").await;
    terminal.type_text("stty size; tty; echo $TERM\r").await;
    terminal.shows("30 90\r\n/dev/pts/").await;
    terminal.shows("xterm-256color").await;
    terminal.socket.send(Message::text(r#"{"rows": 40, "columns": 100}"#)).await.unwrap();
    terminal.socket.send(Message::text("nonsense")).await.unwrap();
    terminal.type_text("until [ \"$(stty size)\" = '40 100' ]; do sleep 0.02; done; echo re''sized\r").await;
    terminal.shows("resized").await;
    let mark = format!("60.{}", std::process::id());
    terminal.type_text(&format!("sleep {mark}\r")).await;
    eventually("it sleeps", async || find_process(&mark).is_some()).await;
    terminal.type_text("\x03").await;
    terminal.shows("$ ").await;
    terminal.type_text("echo inter''rupted\r").await;
    terminal.shows("interrupted").await;
    terminal.type_text("exit 3\r").await;
    let (_, last) = terminal.end().await;
    assert_eq!(
        last,
        json!({ "exit_code": 3, "message": "exited with code 3", "outcome": { "outcome": "exited", "code": 3 } })
    );
    let (shown, last) = Terminal::open(&fixture, &id, "?command=tty;exit%205").await.end().await;
    assert!(shown.starts_with("/dev/pts/"), "{shown}");
    assert_eq!(last["exit_code"], 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paste_arrives_whole() {
    let fixture = Fixture::start().await;
    let id = fixture.sandbox(json!({})).await;
    let mut terminal =
        Terminal::open(&fixture, &id, "?command=stty%20-echo;echo%20ready;head%20-n%205000%20|%20cksum").await;
    terminal.shows("ready").await;
    let lines: Vec<String> = (0..5000).map(|number| format!("this is line {number}\n")).collect();
    for line in &lines {
        terminal.type_text(line).await;
    }
    let (shown, last) = terminal.end().await;
    assert_eq!(last["exit_code"], 0);
    let expected = std::process::Command::new("sh")
        .args(["-c", "for n in $(seq 0 4999); do echo this is line $n; done | cksum"])
        .output()
        .unwrap();
    assert_eq!(shown.trim(), String::from_utf8(expected.stdout).unwrap().trim());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_terminal_that_is_closed_ends_its_command() {
    let fixture = Fixture::start().await;
    let id = fixture.sandbox(json!({})).await;
    let mark = format!("closed-terminal-{}", std::process::id());
    let mut terminal = Terminal::open(&fixture, &id, &format!("?command=echo%20ready;sleep%2060;:%20{mark}")).await;
    terminal.shows("ready").await;
    assert!(find_process(&mark).is_some());
    drop(terminal);
    eventually("the command is killed", async || find_process(&mark).is_none()).await;
    let event = fixture.event(&id, "exec_finished").await;
    assert_eq!(event["outcome"], json!({ "outcome": "lost", "reason": "the terminal was closed" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_no_terminal_is_refused() {
    let fixture = Fixture::start().await;
    let id = fixture.sandbox(json!({})).await;
    let path = format!("/sandboxes/{id}/pty");
    let plain = fixture.fetch(&path).await;
    assert_eq!(plain.refusal(), "426 | this is a terminal; connect to it by WebSocket");
    assert_eq!(plain.header("upgrade"), "websocket");
    let refused = async |query: &str, origin: Option<&str>| {
        let mut request = format!("ws://{}{path}{query}", fixture.authority()).into_client_request().unwrap();
        if let Some(origin) = origin {
            request.headers_mut().insert("origin", origin.parse().unwrap());
        }
        match connect_async(request).await {
            Ok(_) => 101,
            Err(Error::Http(response)) => response.status().as_u16(),
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!(refused("", Some("http://evil.example")).await, 403);
    assert_eq!(refused("", Some("null")).await, 403);
    assert_eq!(refused("", Some(&fixture.url)).await, 101);
    assert_eq!(refused("?rows=0", None).await, 422);
    assert_eq!(refused("?rows=70000", None).await, 422);
    fixture.delete(&format!("/sandboxes/{id}")).await;
    fixture.end(&id).await;
    assert_eq!(refused("", None).await, 409);
}
