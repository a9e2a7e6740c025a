//! Files of a workspace, one at a time, while the job runs and after.

use std::os::unix::fs::MetadataExt;

use reqwest::Method;
use serde_json::{Value, json};

use crate::support::{Fixture, eventually};

/// Paths of a listing with their kinds.
fn names(list: &Value) -> Vec<String> {
    let entries = list["entries"].as_array().unwrap();
    let text = |entry: &Value| format!("{} {}", entry["kind"].as_str().unwrap(), entry["raw"].as_str().unwrap());
    entries.iter().map(text).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_written_read_moved_and_removed_in_every_state() {
    let fixture = Fixture::start().await;
    let id = fixture.shell(&["until [ -e go ]; do sleep 0.02; done; cat dir/a.txt; rm go"]).await;
    fixture.event(&id, "step_started").await;
    for is_running in [true, false] {
        let files = format!("/jobs/{id}/files");
        let written = fixture.put(&format!("{files}/dir/a.txt"), "one\n").await;
        assert_eq!(written.json(), json!({ "path": "dir/a.txt", "size_bytes": 4, "mode": 0o644 }));
        let binary: Vec<u8> = (0..=255).cycle().take(100_000).collect();
        fixture.put(&format!("{files}/dir/bytes?mode=750"), binary.clone()).await;
        let reply = fixture.fetch(&format!("{files}/dir/bytes")).await;
        assert!(reply.body == binary && reply.header("content-length") == "100000");
        let made = fixture.put(&format!("{files}/empty/deep?directory=true"), "").await;
        assert_eq!(made.json()["path"], "empty/deep");
        assert_eq!(names(&fixture.get(&files).await), ["directory dir", "directory empty"]);
        assert_eq!(names(&fixture.get(&format!("{files}/")).await), ["directory dir", "directory empty"]);
        let list = fixture.get(&format!("{files}/dir")).await;
        assert_eq!(names(&list), ["file a.txt", "file bytes"]);
        assert_eq!((&list["entries"][1]["mode"], &list["entries"][1]["size_bytes"]), (&json!(0o750), &json!(100_000)));
        let tree = fixture.get(&format!("{files}?recursive=true")).await;
        let all = ["directory dir", "file dir/a.txt", "file dir/bytes", "directory empty", "directory empty/deep"];
        assert_eq!((names(&tree), &tree["truncated"]), (all.map(str::to_owned).to_vec(), &json!(false)));

        let moved =
            fixture.post(&format!("/jobs/{id}/move"), json!({ "from": "dir/bytes", "to": "empty/moved" })).await;
        assert_eq!(moved.status, 204, "{}", moved.text());
        let gone = fixture.fetch(&format!("{files}/dir/bytes")).await.refusal();
        assert_eq!(gone, "404 | \"dir/bytes\" does not exist; a GET of its directory lists what does");
        let full = fixture.delete(&format!("{files}/empty")).await.refusal();
        assert_eq!(full, "409 | \"empty\" is a directory that is not empty; add ?recursive=true to remove it");
        assert_eq!(fixture.delete(&format!("{files}/empty?recursive=true")).await.status, 204);
        assert_eq!(fixture.delete(&format!("{files}/empty")).await.status, 404);
        if is_running {
            fixture.put(&format!("{files}/go"), "").await;
            fixture.end(&id).await;
            assert_eq!(fixture.text(&format!("/jobs/{id}/log?step=1")).await, "one\n");
        }
    }
    let page = fixture.get(&format!("/jobs/{id}/events?follow=false")).await;
    let events = page["events"].as_array().unwrap();
    let changes = events.iter().filter(|event| event["type"] == "file_changed");
    let changes: Vec<_> =
        changes.map(|event| format!("{} {}", event["action"], event["path"]).replace('"', "")).collect();
    let expected =
        ["written dir/a.txt", "written dir/bytes", "written empty/deep", "moved empty/moved", "removed empty"];
    assert_eq!(changes[..5], expected);
    assert_eq!(changes[5], "written go");
    assert_eq!(changes[6..], expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_are_bytes() {
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&["printf bytes > \"$(printf 'a\\377b')\"; mkdir 'with space?#%'"]).await;
    let files = format!("/jobs/{id}/files");
    let list = fixture.get(&files).await;
    assert_eq!(names(&list), ["file a%FFb", "directory with%20space%3F%23%25"]);
    assert_eq!(list["entries"][0]["path"], "a\u{fffd}b");
    assert_eq!(fixture.text(&format!("{files}/a%FFb")).await, "bytes");
    assert_eq!(fixture.put(&format!("{files}/with%20space%3F%23%25/%ff%fe"), "new").await.status, 200);
    assert_eq!(fixture.text(&format!("{files}/with%20space%3F%23%25/%FF%FE")).await, "new");
    assert_eq!(fixture.delete(&format!("{files}/a%FFb")).await.status, 204);
    assert_eq!(fixture.put(&format!("{files}/%C3%BC/%E2%82%AC"), "").await.json()["path"], "ü/€");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_leads_out_of_the_workspace() {
    let fixture = Fixture::start().await;
    let script = "ln -s /etc/passwd out; ln -s / root; ln -s ../../../.. up; ln -s inside in; echo x > inside; mkfifo pipe; ln -s loop loop";
    let id = fixture.ended_with(&[script]).await;
    let target = |path: &str| format!("/jobs/{id}/files/{path}");
    let raw = async |method: &str, path: &str| {
        let body = if method == "PUT" { "Content-Length: 1\r\n\r\nx" } else { "\r\n" };
        let request = format!("{method} {} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n{body}", target(path));
        let answer = fixture.raw(request.as_bytes()).await;
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    for path in [
        "../agent.log",
        "..%2Fagent.log",
        "%2e%2e/agent.log",
        "a/../../agent.log",
        "/etc/passwd",
        "%2Fetc%2Fpasswd",
        "a%00b",
        "..",
        "%2e%2e",
        "out",
        "root/etc/passwd",
        "up/agent.log",
        "loop",
        "%",
        "%zz",
        "%2",
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let status = raw(method, path).await;
            // A symbolic link itself may be written over and removed; that is not what it points to.
            let is_link = ["out", "loop"].contains(&path) && method != "GET";
            if !is_link {
                assert_eq!(status, "422", "{method} {path}");
            }
        }
    }
    assert!(std::fs::read_to_string("/etc/passwd").unwrap().contains("root:"));
    for path in [".", "", "./", "%2e"] {
        assert!(["422", "405"].contains(&raw("DELETE", path).await.as_str()), "the workspace stays: {path}");
    }
    assert_eq!(fixture.text(&target("in")).await, "x\n", "links within are followed");
    assert_eq!(fixture.text(&target("/workspace/inside").replace("files//", "files/%2F")).await, "x\n");
    let pipe = fixture.fetch(&target("pipe")).await.refusal();
    assert_eq!(pipe, "409 | \"pipe\" is a socket, a pipe or a device; only regular files are opened");
    for (path, expected) in [
        (
            "%2Fetc",
            "422 path | \"/etc\" is not a path in the workspace: it is absolute; write it relative to the workspace, or starting with /workspace/",
        ),
        ("a%00b", "422 path | \"a\0b\" is not a path in the workspace: it contains a NUL byte"),
        (
            "root/etc",
            "422 path | \"root/etc\" leads out of the workspace through a symbolic link; only paths that stay inside are opened",
        ),
    ] {
        assert_eq!(fixture.fetch(&target(path)).await.refusal(), expected);
    }
    let long = fixture.fetch(&target(&"x".repeat(300))).await.refusal();
    assert!(long.ends_with("one of its names is longer than 255 bytes"), "{long}");
    let move_out = fixture.post(&format!("/jobs/{id}/move"), json!({ "from": "inside", "to": "../x" })).await;
    assert_eq!(
        move_out.refusal(),
        "422 to | to: \"../x\" is not a path in the workspace: it contains \"..\"; write the path without it"
    );
    let into_file = fixture.put(&target("inside/x"), "x").await.refusal();
    assert_eq!(into_file, "409 | \"inside\" is not a directory, or something on the way to it is not");
    let mode = fixture.put(&target("x?mode=4755"), "x").await.refusal();
    assert_eq!(mode, "422 mode | mode: it is written in octal, between 0 and 777");
}

#[tokio::test(flavor = "multi_thread")]
async fn files_are_served_so_that_no_browser_runs_them() {
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&["echo '<script>alert(1)</script>' > page.html"]).await;
    let path = format!("/jobs/{id}/files/page.html");
    let reply = fixture.fetch(&path).await;
    assert_eq!(reply.header("content-type"), "application/octet-stream");
    assert_eq!(reply.header("x-content-type-options"), "nosniff");
    assert_eq!(reply.header("content-security-policy"), "sandbox; default-src 'none'; frame-ancestors 'none'");
    assert!(reply.header("last-modified").ends_with(" GMT"));
    let part = fixture.send(fixture.request(Method::GET, &path).header("Range", "bytes=1-6")).await;
    assert_eq!((part.status, part.text().as_str(), part.header("content-range")), (206, "script", "bytes 1-6/26"));
    let head = fixture.send(fixture.request(Method::HEAD, &path)).await;
    assert_eq!((head.status, head.header("content-length"), head.body.len()), (200, "26", 0));
    let behind = fixture.send(fixture.request(Method::GET, &path).header("Range", "bytes=26-")).await;
    assert_eq!(behind.status, 416);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_file_goes_through_without_being_held() {
    const LENGTH: usize = 100 << 20;
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&["true"]).await;
    let chunk = bytes::Bytes::from(vec![7; 1 << 20]);
    let chunks = futures_util::stream::iter((0..LENGTH >> 20).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
    let before = resident_bytes();
    let reply = fixture.put(&format!("/jobs/{id}/files/large"), reqwest::Body::wrap_stream(chunks)).await;
    assert_eq!(reply.json()["size_bytes"], LENGTH);
    // Other tests run beside this one.
    assert!(resident_bytes() < before + (90 << 20), "{before} {}", resident_bytes());
    assert_eq!(std::fs::metadata(fixture.directory(&id).join("workspace/large")).unwrap().size(), LENGTH as u64);

    let small = Fixture::with(|settings| settings.upload_max_bytes = 1000).await;
    let id = small.ended_with(&["true"]).await;
    let refused = small.put(&format!("/jobs/{id}/files/large"), vec![0; 1001]).await;
    assert_eq!(refused.refusal(), "413 | the upload is larger than 1000 B; raise --upload-max");
    assert_eq!(small.put(&format!("/jobs/{id}/files/fits"), vec![0; 1000]).await.status, 200);
    assert_eq!(names(&small.get(&format!("/jobs/{id}/files")).await), ["file fits"]);
}

fn resident_bytes() -> usize {
    let pages = std::fs::read_to_string("/proc/self/statm").unwrap();
    pages.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_hangs_up_leaves_nothing() {
    let fixture = Fixture::start().await;
    let id = fixture.ended_with(&["echo old > file"]).await;
    let workspace = fixture.directory(&id).join("workspace");
    let one = vec![b'x'; 300_000];
    for (path, head) in [("files/file", "PUT"), ("files/new/file", "PUT"), ("files", "POST")] {
        let boundary = "--b\r\nContent-Disposition: form-data; name=\"f\"; filename=\"part\"\r\n\r\n";
        let kind = if head == "POST" { "Content-Type: multipart/form-data; boundary=b\r\n" } else { "" };
        let mut stream = fixture.connect().await;
        let request = format!(
            "{head} /jobs/{id}/{path} HTTP/1.1\r\nHost: localhost\r\n{kind}Content-Length: 9999999\r\n\r\n{}",
            if kind.is_empty() { "" } else { boundary }
        );
        tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.unwrap();
        tokio::io::AsyncWriteExt::write_all(&mut stream, &one).await.unwrap();
        drop(stream);
    }
    // Directories that were made on the way stay; there is no file, not even an unfinished one.
    eventually("no unfinished file is left", async || {
        let found = std::process::Command::new("find").arg(&workspace).args(["-type", "f"]).output().unwrap();
        let found = String::from_utf8(found.stdout).unwrap();
        found.lines().eq([workspace.join("file").to_str().unwrap()])
    })
    .await;
    assert_eq!(fixture.text(&format!("/jobs/{id}/files/file")).await, "old\n");
    let page = fixture.get(&format!("/jobs/{id}/events?follow=false")).await;
    assert!(!page.to_string().contains("file_changed"), "{page}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_has_not_started_has_no_files() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let id = fixture.schedule(json!({ "task": "x" })).await;
    for path in ["files", "files/x", "diff"] {
        let refusal = fixture.fetch(&format!("/jobs/{id}/{path}")).await.refusal();
        assert_eq!(refusal, "409 | the job has not started, it has no files yet; wait until it runs");
    }
    fixture.post(&format!("/jobs/{id}/cancel"), Value::Null).await;
    let refusal = fixture.fetch(&format!("/jobs/{id}/download")).await.refusal();
    assert_eq!(refusal, "404 | the job has no files: it ended before it started; POST /jobs/ID/retry starts it anew");
}
