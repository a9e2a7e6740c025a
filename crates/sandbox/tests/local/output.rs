//! Output: bounded in the guest however much there is, complete however it is read, resumable.

use cofferdam_protocol::exec::ExecOutcome;

use crate::support::{Texts, new_id, sandbox, sh, shell, until};

const MIB: u64 = 1 << 20;

/// Memory of a process that is its own, in bytes.
fn resident(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<u64>().unwrap() * 1024
}

#[tokio::test]
async fn a_reader_that_does_not_read_stops_the_command_and_grows_nothing() {
    let sandbox = sandbox().await;
    let (id, request) = (new_id(), shell("head -c 300000000 /dev/zero; echo finished >&2"));
    let mut stream = sandbox.client().exec(&id, &request, 0, false).await.unwrap();
    stream.next(|_, _| ()).await.unwrap();
    // The guest takes in what it keeps, and no more; asking goes through a connection of its own.
    let control = sandbox.connect().await.unwrap();
    let mut last = 0;
    let end = until(async || {
        let end = control.status(&id).await.unwrap().output_end;
        let stands_still = end == last && end > 60 * MIB;
        last = end;
        stands_still.then_some(end)
    });
    let end = end.await;
    assert!(end < 80 * MIB, "{end} bytes were taken in");
    assert_eq!(control.status(&id).await.unwrap().outcome, None, "the command waits");
    let guest = resident(sandbox.guest_pid().unwrap());
    assert!(guest < 24 * MIB, "the guest has grown to {guest} bytes");

    // And nothing is lost: read on, everything comes.
    let mut total = 0;
    let status = stream.follow(|_, data| total += data.len()).await.unwrap();
    assert_eq!(status.outcome, Some(ExecOutcome::Exited { code: 0 }));
    assert!(total > 299_000_000, "{total}");
    assert!(resident(sandbox.guest_pid().unwrap()) < 24 * MIB);
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn a_broken_stream_is_resumed_where_it_broke() {
    let sandbox = sandbox().await;
    let (id, request) = (new_id(), shell("seq 1 300000"));
    let mut output = Vec::new();
    let mut position = 0;
    for round in 0.. {
        let connection = sandbox.connect().await.unwrap();
        let mut stream = connection.exec(&id, &request, position, true).await.unwrap();
        // The first rounds read three pieces and break off; what was read of an incomplete frame comes again.
        let pieces = if round < 5 { 3 } else { usize::MAX };
        let mut more = true;
        for _ in 0..pieces {
            more = stream.next(|_, data| output.extend_from_slice(data)).await.unwrap();
            if !more {
                break;
            }
        }
        if !more {
            assert_eq!(stream.finish().unwrap().outcome, Some(ExecOutcome::Exited { code: 0 }));
            break;
        }
        output.truncate(output.len() - stream.unfinished_bytes());
        position = stream.position();
        sandbox.client().acknowledge(&id, position).await.unwrap();
    }
    let expected: String = (1..=300_000).map(|n| format!("{n}\n")).collect();
    assert_eq!(output.len(), expected.len());
    assert!(output == expected.as_bytes(), "the pieces do not make up the whole");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn streams_keep_their_order_and_their_names() {
    let sandbox = sandbox().await;
    let finished = sh(&sandbox, "for n in 1 2 3; do echo out$n; echo err$n >&2; done").await;
    assert_eq!(finished.stdout_text(), "out1\nout2\nout3\n");
    assert_eq!(finished.stderr_text(), "err1\nerr2\nerr3\n");
    sandbox.destroy().await.unwrap();
}
