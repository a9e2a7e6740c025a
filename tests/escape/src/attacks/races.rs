//! A directory that becomes a symlink, and a directory again, while the guest's file interface works below it: what
//! was checked is not what is used, if the interface checks names. Bounded by a number of rounds and by time.

use std::time::{Duration, Instant};

use cofferdam_sandbox::client::WriteFile;
use http_body_util::BodyExt;

use super::file_interface::{content, read};
use super::network::wait_for_file;
use crate::attack::{Attack, Finding, Outside};
use crate::stage::Stage;
use crate::verdict::Category;

/// How long each kind of request is raced.
const RACE: Duration = Duration::from_millis(400);

const fn race(
    name: &'static str,
    description: &'static str,
    scene: crate::attack::Scene,
    outside: crate::attack::Scene,
) -> Attack {
    Attack::scene(Category::FileInterface, name, description, scene, Outside::Scene(outside))
}

pub(super) const ATTACKS: &[Attack] = &[
    race(
        "race-read",
        "swaps a directory for a symlink while files are read",
        |stage| Box::pin(swapped(stage, Kind::Read)),
        |stage| Box::pin(raced_outside(stage)),
    )
    .shown(),
    race(
        "race-write",
        "the same while files are written",
        |stage| Box::pin(swapped(stage, Kind::Write)),
        |stage| Box::pin(raced_outside(stage)),
    ),
    race(
        "race-remove",
        "the same while files are removed",
        |stage| Box::pin(swapped(stage, Kind::Remove)),
        |stage| Box::pin(raced_outside(stage)),
    ),
    race(
        "race-archive",
        "the same while a directory is packed and unpacked",
        |stage| Box::pin(swapped(stage, Kind::Archive)),
        |stage| Box::pin(raced_outside(stage)),
    ),
];

#[derive(Clone, Copy)]
enum Kind {
    Read,
    Write,
    Remove,
    Archive,
}

async fn swapped(stage: &Stage<'_>, kind: Kind) -> Finding {
    let sandbox = stage.sandbox()?;
    let client = sandbox.client();
    for name in [b"stop".as_slice(), b"swapping", b"swap"] {
        let _ = client.remove(name, true).await;
    }
    let target = stage.facts.directory().display().to_string();
    let swap_request = stage.request(&["swap-directory", &target]);
    let requests = async {
        wait_for_file(sandbox, b"swapping").await?;
        let (mut seen, mut rounds) = (Vec::new(), 0);
        let end = Instant::now() + RACE;
        while Instant::now() < end && rounds < 2_000 {
            rounds += 1;
            match kind {
                Kind::Read => seen.extend(read(client, b"swap/secret").await.unwrap_or_default()),
                Kind::Write => {
                    let options = WriteFile { parents: rounds % 2 == 0, ..WriteFile::default() };
                    let _ = client.write_file(b"swap/secret", content("overwritten"), options).await;
                    let _ = client.make_directory(b"swap/planted/deep", true).await;
                }
                Kind::Remove => {
                    let _ = client.remove(b"swap/secret", false).await;
                    let _ = client.rename(b"swap/secret", b"stolen").await;
                    let _ = client.remove(b"swap/work", true).await;
                }
                Kind::Archive => {
                    if let Ok(body) = client.tar_out(b"swap").await {
                        seen.extend(body.collect().await.map(|body| body.to_bytes().to_vec()).unwrap_or_default());
                    }
                    let _ = client.tree(b"swap", 3).await;
                }
            }
        }
        let _ = client.write_file(b"stop", content(""), WriteFile::default()).await;
        Ok::<_, String>((seen, rounds))
    };
    let (swaps, asked) = tokio::join!(stage.act(client, &swap_request), requests);
    let (seen, rounds) = asked?;
    let swaps = crate::stage::line(&swaps?)?;
    stage.look_around(sandbox, &seen).await?;
    Ok(format!("{rounds} requests against {swaps}"))
}

/// A reader that looks first whether it is a symlink, and reads then, is led astray by the same swapping.
async fn raced_outside(stage: &Stage<'_>) -> Finding {
    let facts = crate::facts::Facts::new(&stage.program()).map_err(|error| error.to_string())?;
    let work = facts.work();
    let mut swapper = tokio::process::Command::new(stage.program())
        .args(["swap-directory".to_owned(), facts.directory().display().to_string()])
        .current_dir(&work)
        .stdout(std::process::Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .map_err(|error| error.to_string())?;
    let end = Instant::now() + Duration::from_secs(5);
    let mut found = Err("no such reader was led astray in time".to_owned());
    let mut rounds = 0;
    while found.is_err() && Instant::now() < end {
        rounds += 1;
        let path = work.join("swap");
        let is_directory = std::fs::symlink_metadata(&path).is_ok_and(|found| found.is_dir());
        if is_directory && std::fs::read_to_string(path.join("secret")).is_ok_and(|text| text == facts.marker) {
            found = Ok(format!("a reader that checks first was led astray in round {rounds}"));
        }
    }
    let _ = std::fs::write(work.join("stop"), "");
    let _ = tokio::time::timeout(Duration::from_secs(2), swapper.wait()).await;
    found
}
