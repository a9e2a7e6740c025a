//! The guest, its spawner and its reaper: after each of these the sandbox must still start a command and still end
//! one whose time is up. Also signals to processes of the host by the numbers they have there.

use std::time::{Duration, Instant};

use cofferdam_protocol::exec::{ExecOutcome, ExecRequest, LimitHit};
use cofferdam_protocol::limits::Limits;
use cofferdam_sandbox::local::{Sandbox, SandboxSpec};

use crate::attack::{Attack, Finding, HARMFUL, Outside, Scene};
use crate::stage::{Stage, line, new_id};
use crate::verdict::Category;

const fn act(name: &'static str, description: &'static str, arguments: &'static [&'static str]) -> Attack {
    Attack::act(Category::Supervisor, name, description, arguments)
}

const fn scene(name: &'static str, description: &'static str, scene: Scene) -> Attack {
    Attack::scene(Category::Supervisor, name, description, scene, HARMFUL)
}

pub(super) const ATTACKS: &[Attack] = &[
    scene("signal-first", "sends every signal to process 1", |stage| Box::pin(then_time(stage, &["signal-first"]))),
    scene("slow-first-down", "one processor, idle class, lowest priority for process 1", |stage| {
        Box::pin(then_time(stage, &["slow-down", "1"]))
    }),
    scene("slow-everybody-down", "lowest priority for every process of its user, also outside", |stage| {
        Box::pin(then_time(stage, &["slow-everybody-down"]))
    }),
    scene("signal-all", "kills whatever it can", |stage| Box::pin(signal_all(stage))),
    act("trace-first", "traces process 1", &["trace", "1"]).outside(Outside::With(&["trace", "{victim}"])),
    act("limit-first", "limits process 1", &["set-limits", "1"])
        .outside(Outside::With(&["set-limits", "{victim}"]))
        .shown(),
    act("take-descriptor-of-first", "takes a descriptor out of process 1", &["take-descriptor", "1"])
        .outside(Outside::With(&["take-descriptor", "{victim}"])),
    act("program-of-first", "reads or overwrites the guest's program", &["write-program", "1"])
        .outside(Outside::With(&["write-program", "{victim}"]))
        .shown(),
    act("sacrifice-first", "offers process 1 to the kernel when memory is short", &["offer-to-memory-killer", "1"])
        .outside(Outside::With(&["offer-to-memory-killer", "{victim}"]))
        .shown(),
    act("signal-host-process", "kills a process of the host's by its number", &["signal", "{victim}", "9"]).shown(),
    act("trace-host-process", "traces a process of the host's", &["trace", "{victim}"]),
    scene("signal-guest", "kills the guest by the number it has outside", |stage| Box::pin(signal_guest(stage))),
    act("take-port-of-proxy", "listens in the proxy's place", &["take-port", "3128"])
        .outside(Outside::With(&["take-port", "0"]))
        .shown(),
    act("sockets-of-guest", "looks for sockets to speak to the guest", &["named-sockets"]),
    act("spool-files-tmp", "looks for the guest's spool files to forge", &["list-any", "/tmp"]).shown(),
    act("spool-files-var-tmp", "looks for the guest's spool files elsewhere", &["list-any", "/var/tmp"]),
    act("state-of-guest", "looks for the guest's lock and state", &["list-any", "/run"]).shown(),
    scene("flood-of-refusals", "12,000 refused calls, each reported to the guest", |stage| Box::pin(flood(stage))),
    scene("stop-newborns", "stops commands before they have become one", |stage| Box::pin(stop_newborns(stage))),
    scene("end-while-stopped", "keeps a newborn command stopped while the sandbox is ended", |stage| {
        Box::pin(end_while_stopped(stage))
    }),
    scene("end-beside-start", "is ended at the moment at which another command starts", |stage| {
        Box::pin(end_beside_start(stage))
    }),
    scene("unwanted-children", "leaves children to the guest that it did not ask for", |stage| {
        Box::pin(unwanted_children(stage))
    }),
];

/// A command that waits is ended when its time is up.
pub(super) async fn time_is_kept(stage: &Stage<'_>, sandbox: &Sandbox) -> Result<(), String> {
    let began = Instant::now();
    let request = ExecRequest { timeout_ms: 100, ..stage.request(&["ignore-signals"]) };
    let finished = stage.act(sandbox.client(), &request).await?;
    match finished.status.outcome {
        Some(ExecOutcome::Killed { by: LimitHit::Time { .. } }) if began.elapsed() < Duration::from_secs(5) => Ok(()),
        other => Err(format!("a command with 100 ms ended after {:?} with {other:?}", began.elapsed())),
    }
}

async fn then_time(stage: &Stage<'_>, act: &[&str]) -> Finding {
    let sandbox = stage.sandbox()?;
    let said = stage.judge(sandbox, &stage.request(act)).await?;
    time_is_kept(stage, sandbox).await?;
    Ok(format!("{said}; commands start and end as before"))
}

/// Started beside a command that it is allowed to kill, and beside a guest that it is not.
async fn signal_all(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    stage.act(sandbox.client(), &stage.request(&["signal-all"])).await?;
    stage.look_around(sandbox, &[]).await?;
    time_is_kept(stage, sandbox).await?;
    Ok("commands start and end as before".to_owned())
}

async fn signal_guest(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    let guest = sandbox.guest_pid().ok_or("the guest has no number")?.to_string();
    stage.judge(sandbox, &stage.request(&["signal", &guest, "9"])).await
}

/// The guest answers others meanwhile, and afterwards refused calls are still refused.
async fn flood(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.sandbox()?;
    let request = stage.request(&["flood-of-refusals", "12000"]);
    let (id, client) = (new_id(), sandbox.connect().await.map_err(|error| error.to_string())?);
    let flood = client.run(&id, &request);
    tokio::pin!(flood);
    let (mut slowest, mut asked) = (Duration::ZERO, 0);
    let finished = loop {
        tokio::select! {
            finished = &mut flood => break finished.map_err(|error| error.to_string())?,
            took = async {
                let began = Instant::now();
                sandbox.client().usage().await.map(|_| began.elapsed())
            } => {
                slowest = slowest.max(took.map_err(|error| error.to_string())?);
                asked += 1;
            }
        }
    };
    let said = line(&finished)?;
    if slowest > Duration::from_secs(2) {
        return Err(format!("the guest took {slowest:?} to answer"));
    }
    stage.look_around(sandbox, &[]).await?;
    Ok(format!("{said}; the guest answered {asked} questions meanwhile, the slowest in {} ms", slowest.as_millis()))
}

/// Every command asked for while somebody stops all that moves must still come to an end: run, or out of time.
async fn stop_newborns(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.launch(&SandboxSpec::default()).await?;
    let storm_client = sandbox.connect().await.map_err(|error| error.to_string())?;
    let (storm_id, storm_request) = (new_id(), stage.request(&["stop-newborns", "2500"]));
    let storm = storm_client.run(&storm_id, &storm_request);
    let commands = async {
        let request = ExecRequest { timeout_ms: 50, ..stage.request(&["nothing"]) };
        let mut ended = 0;
        let until = Instant::now() + Duration::from_millis(2_000);
        while Instant::now() < until {
            let one = tokio::time::timeout(Duration::from_secs(8), stage.act(sandbox.client(), &request));
            one.await.map_err(|_| format!("after {ended} commands the guest could start no more"))??;
            ended += 1;
        }
        Ok::<_, String>(ended)
    };
    let (_, ended) = tokio::join!(async { tokio::time::timeout(Duration::from_secs(15), storm).await }, commands);
    let ended = ended?;
    stage.still_works(&sandbox).await?;
    time_is_kept(stage, &sandbox).await?;
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    Ok(format!("{ended} commands were started and ended meanwhile"))
}

/// The sandbox can be ended at any moment, and its guest ends with it.
async fn end_while_stopped(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.launch(&SandboxSpec::default()).await?;
    let client = sandbox.connect().await.map_err(|error| error.to_string())?;
    let (storm_id, storm_request) = (new_id(), stage.request(&["stop-newborns", "5000"]));
    let storm = client.exec(&storm_id, &storm_request, 0, false).await.map_err(|error| error.to_string())?;
    // Until one does not start at once: then it is stopped, as it should be here.
    let request = ExecRequest { timeout_ms: 50, ..stage.request(&["nothing"]) };
    let mut tries = 0;
    while tries < 50 && tokio::time::timeout(Duration::from_millis(300), client.run(&new_id(), &request)).await.is_ok()
    {
        tries += 1;
    }
    let began = Instant::now();
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    drop(storm);
    if began.elapsed() > Duration::from_secs(5) {
        return Err(format!("it took {:?} to end it", began.elapsed()));
    }
    Ok(format!(
        "ended after {} ms, with a command that {} commands later did not start",
        began.elapsed().as_millis(),
        tries
    ))
}

/// Ending one command's processes must not take another's along that is just being made.
async fn end_beside_start(stage: &Stage<'_>) -> Finding {
    let sandbox = stage.launch(&SandboxSpec::default()).await?;
    let mut started = 0;
    for _ in 0..40 {
        let request = ExecRequest { timeout_ms: 5, ..stage.request(&["ignore-signals"]) };
        let ended = stage.act(sandbox.client(), &request);
        let others = async {
            for _ in 0..4 {
                stage.still_works(&sandbox).await?;
                started += 1;
            }
            Ok::<_, String>(())
        };
        let (ended, others) = tokio::join!(ended, others);
        ended?;
        others.map_err(|error| format!("after {started} commands one was ended with another: {error}"))?;
    }
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    Ok(format!("{started} commands started while others were ended"))
}

/// More of them than processes are allowed: if they were kept, nothing could be started any more.
async fn unwanted_children(stage: &Stage<'_>) -> Finding {
    let limits = Limits { processes: 64, ..Limits::default() };
    let sandbox = stage.launch(&SandboxSpec { limits, ..SandboxSpec::default() }).await?;
    for _ in 0..3 {
        let finished = stage.act(sandbox.client(), &stage.request(&["unwanted-children", "200"])).await?;
        line(&finished)?;
        stage.still_works(&sandbox).await?;
    }
    let usage = sandbox.client().usage().await.map_err(|error| error.to_string())?;
    sandbox.destroy().await.map_err(|error| error.to_string())?;
    if usage.processes > 8 {
        return Err(format!("{} processes are left", usage.processes));
    }
    Ok("they are collected, and commands start as before".to_owned())
}
