//! Two sandboxes at once, of the same user: one leaves traces of every kind, the other looks for them. And what the
//! kernel counts per user, where one could take everything from the other.

use std::process::Stdio;
use std::time::Duration;

use cofferdam_sandbox::client::RequestBody;
use cofferdam_sandbox::local::SandboxSpec;

use super::network::wait_for_file;
use crate::attack::{Attack, Finding, Outside, Scene};
use crate::facts::unique;
use crate::stage::{Stage, line};
use crate::verdict::Category;

const fn attack(name: &'static str, description: &'static str, inside: Scene, outside: Scene) -> Attack {
    Attack::scene(Category::Neighbours, name, description, inside, Outside::Scene(outside)).shown()
}

pub(super) const ATTACKS: &[Attack] = &[
    attack(
        "files-of-neighbour",
        "reads a neighbour's workspace, temporary files and shared memory files",
        |stage| Box::pin(find(stage, &["find-files", "{held}"])),
        |stage| Box::pin(find_outside(stage, &["find-files", "{held}"])),
    ),
    attack(
        "shared-memory-of-neighbour",
        "attaches a neighbour's System V shared memory",
        |stage| Box::pin(find(stage, &["find-shared-memory", "{held}"])),
        |stage| Box::pin(find_outside(stage, &["find-shared-memory", "{held}"])),
    ),
    attack(
        "queue-of-neighbour",
        "opens a neighbour's message queue",
        |stage| Box::pin(find(stage, &["find-queue", "{held}"])),
        |stage| Box::pin(find_outside(stage, &["find-queue", "{held}"])),
    ),
    attack(
        "process-of-neighbour",
        "sees a neighbour's processes",
        |stage| Box::pin(find(stage, &["find-process", "{held}"])),
        |stage| Box::pin(find_outside(stage, &["find-process", "{held}"])),
    ),
    attack(
        "socket-of-neighbour",
        "connects to a neighbour's abstract socket",
        |stage| Box::pin(find(stage, &["connect-abstract", "{held}"])),
        |stage| Box::pin(find_outside(stage, &["connect-abstract", "{held}"])),
    ),
    attack(
        "port-of-neighbour",
        "connects to a port on a neighbour's loopback",
        |stage| Box::pin(find(stage, &["connect", "127.0.0.1:{held-port}"])),
        |stage| Box::pin(find_outside(stage, &["connect", "127.0.0.1:{held-port}"])),
    ),
    Attack::scene(
        Category::Neighbours,
        "watchers-of-neighbour",
        "takes all inotify instances that its user may have",
        |stage| Box::pin(watchers(stage)),
        Outside::Never("it would take them from this user's programs"),
    ),
];

struct Held {
    marker: String,
    port: u16,
}

impl Held {
    fn new() -> Result<Self, String> {
        let free = std::net::TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
        let port = free.local_addr().map_err(|error| error.to_string())?.port();
        Ok(Self { marker: format!("held-{}", unique()), port })
    }

    fn fill_in(&self, arguments: &[&str]) -> Vec<String> {
        let fill = |text: &&str| text.replace("{held-port}", &self.port.to_string()).replace("{held}", &self.marker);
        arguments.iter().map(fill).collect()
    }

    fn holder(&self) -> [String; 3] {
        ["hold".to_owned(), self.marker.clone(), self.port.to_string()]
    }
}

async fn find(stage: &Stage<'_>, act: &[&str]) -> Finding {
    let held = Held::new()?;
    let neighbour = stage.launch(&SandboxSpec::default()).await?;
    let holder = held.holder();
    let holder: Vec<&str> = holder.iter().map(String::as_str).collect();
    let hold_request = stage.request(&holder);
    let look = async {
        wait_for_file(&neighbour, b"holding").await?;
        let filled = held.fill_in(act);
        let filled: Vec<&str> = filled.iter().map(String::as_str).collect();
        let said = stage.judge(stage.sandbox()?, &stage.request(&filled)).await;
        let _ = neighbour.client().write_file(b"stop", RequestBody::Bytes(None), Default::default()).await;
        said
    };
    let (held_on, said) = tokio::join!(stage.act(neighbour.client(), &hold_request), look);
    let said = said?;
    line(&held_on?).map_err(|error| format!("the neighbour was disturbed: {error}"))?;
    neighbour.destroy().await.map_err(|error| error.to_string())?;
    Ok(said)
}

/// The same two programs without sandboxes see each other.
async fn find_outside(stage: &Stage<'_>, act: &[&str]) -> Finding {
    let held = Held::new()?;
    let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
    let start = |arguments: &[String]| {
        let mut command = tokio::process::Command::new(stage.program());
        command.args(arguments).current_dir(directory.path()).stdin(Stdio::null()).kill_on_drop(true);
        command.stdout(Stdio::piped());
        command
    };
    let mut holder = start(&held.holder()).spawn().map_err(|error| error.to_string())?;
    for _ in 0..1_000 {
        if directory.path().join("holding").exists() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let output = start(&held.fill_in(act)).output().await.map_err(|error| error.to_string())?;
    let _ = std::fs::write(directory.path().join("stop"), "");
    let _ = tokio::time::timeout(Duration::from_secs(5), holder.wait()).await;
    let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    text.strip_prefix("BROKEN: ").map(str::to_owned).ok_or(text.clone())
}

/// One takes what it can get; another sandbox, and its guest, still get one.
async fn watchers(stage: &Stage<'_>) -> Finding {
    let greedy = stage.launch(&SandboxSpec::default()).await?;
    let request = stage.request(&["count-watchers", "100000"]);
    let look = async {
        wait_for_file(&greedy, b"holding").await?;
        let sandbox = stage.sandbox()?;
        let finished = stage.act(sandbox.client(), &stage.request(&["count-watchers", "1"])).await?;
        // Here getting one is what is wanted.
        let got = line(&finished).is_err();
        let watched = sandbox.client().watch(b"").await.is_ok();
        let _ = greedy.client().write_file(b"stop", RequestBody::Bytes(None), Default::default()).await;
        if got && watched { Ok(()) } else { Err(format!("a neighbour got none: program {got}, guest {watched}")) }
    };
    let (taken, looked) = tokio::join!(stage.act(greedy.client(), &request), look);
    let said = line(&taken?);
    looked.map_err(|error| format!("{error}; {said:?}"))?;
    greedy.destroy().await.map_err(|error| error.to_string())?;
    said
}
