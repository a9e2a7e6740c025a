//! A few kills in every test run; `make torture` does many.

use cofferdam_torture::{Options, run};

#[tokio::test(flavor = "multi_thread")]
async fn twenty_kills_lose_nothing_and_leave_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let seed = std::env::var("TORTURE_SEED").map_or_else(|_| getrandom::u64().unwrap(), |seed| seed.parse().unwrap());
    println!("TORTURE_SEED={seed}");
    let summary = run(Options {
        command: vec![env!("CARGO_BIN_EXE_torture-server").into()],
        data: directory.path().join("data"),
        kills: 20,
        people: 5,
        seed,
        progress: |_, _| (),
    })
    .await
    .unwrap();
    println!("{summary}");
    assert_eq!(summary.wrong, Vec::<String>::new(), "TORTURE_SEED={seed}");
}
