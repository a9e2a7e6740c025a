//! What is wrong is refused with the right status and a sentence that helps; nothing here is the server's fault.

use reqwest::Method;
use serde_json::json;

use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_wrong() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let tools =
        "`shell`, `bash`, `python`, `javascript`, `typescript`, `read_file`, `write_file`, `gui`, `xdotool`, `xdot`";
    for (body, expected) in [
        (
            "{\"task\": \n  oops}",
            "400 | the body is not JSON: expected value at line 2 column 3; check it at that place",
        ),
        ("", "400 | the body is not JSON: EOF while parsing a value at line 1 column 0; check it at that place"),
        (
            r#"{"task": "x"} {"#,
            "400 | the body is not JSON: trailing characters at line 1 column 15; check it at that place",
        ),
        (
            "[]",
            "422 body | the body is not what is expected: invalid type: sequence, expected an object with steps, task or prompt at line 1 column 0; /docs says what is",
        ),
        (
            "\"x\"",
            "422 body | the body is not what is expected: invalid type: string \"x\", expected an object with steps, task or prompt at line 1 column 3; /docs says what is",
        ),
        ("{}", "422 steps | steps: there is nothing to do; send steps, or a goal as task or prompt"),
        (r#"{"steps": []}"#, "422 steps | steps: the list is empty; send at least one step"),
        (
            r#"{"steps": [{"tool": "shell", "command": "ls"}], "prompt": "x"}"#,
            "422 steps | steps: send either steps or a goal (task or prompt), not several of them",
        ),
        (
            r#"{"steps": [{"tool": "fly"}]}"#,
            &format!(
                "422 steps[0].tool | steps[0].tool: unknown variant `fly`, expected one of {tools} at line 1 column 25; correct it"
            ),
        ),
        (r#"{"steps": [{"command": "ls"}]}"#, "422 steps[0].tool | steps[0].tool: it is missing; send it too"),
        (r#"{"steps": [{"tool": "shell"}]}"#, "422 steps[0].command | steps[0].command: it is missing; shell needs it"),
        (
            r#"{"steps": [{"tool": "shell", "command": 5}]}"#,
            "422 steps[0].command | steps[0].command: invalid type: integer `5`, expected a string at line 1 column 41; correct it",
        ),
        (
            r#"{"steps": [{"tool": "shell", "command": "ls", "cwdd": "/"}]}"#,
            "422 steps[0].cwdd | steps[0].cwdd: there is no such field; /docs says which there are",
        ),
        (r#"{"task": "x", "timeuot": 5}"#, "422 timeuot | timeuot: there is no such field; /docs says which there are"),
        (
            r#"{"task": "x", "timeout": []}"#,
            "422 timeout | timeout: a number, or text such as \"10m\" or \"512MiB\", is expected at line 1 column 28; correct it",
        ),
        (
            r#"{"task": "x", "timeout": "soon"}"#,
            "422 timeout | timeout: it is not a time of at most 30 days; write seconds as a number, or \"10m\"",
        ),
        (
            r#"{"task": "x", "timeout": 0}"#,
            "422 timeout | timeout: it must be more than 0; leave it out for the default",
        ),
        (
            r#"{"task": "x", "timeout": 1e300}"#,
            "422 timeout | timeout: it is not a number of seconds; write 30, or \"10m\"",
        ),
        (
            r#"{"task": "x", "env": {"A": 1}}"#,
            "422 env.A | env.A: invalid type: integer `1`, expected a string at line 1 column 28; correct it",
        ),
        (
            r#"{"task": "x", "labels": []}"#,
            "422 labels | labels: invalid type: sequence, expected a map at line 1 column 24; correct it",
        ),
        (
            r#"{"task": "x", "files": [{"path": "a", "content": "b", "mode": "755"}]}"#,
            "422 files[0].mode | files[0].mode: invalid type: string \"755\", expected u32 at line 1 column 67; correct it",
        ),
        (
            r#"{"task": "x", "files": [{"path": "a", "content_base64": "!"}]}"#,
            "422 files[0].content_base64 | files[0].content_base64: it is not base64 (invalid symbol 33, offset 0); encode the content with A-Z, a-z, 0-9, + and /, and = at its end",
        ),
        (
            r#"{"task": "x", "limits": {"ram": 1}}"#,
            "422 limits.ram | limits.ram: there is no limit called \"ram\"; the limits are cpu, memory, processes, files, workspace, tmp, time",
        ),
        (
            r#"{"task": "x", "limits": {"memory": "1MiB"}}"#,
            "422 limits.memory | limits.memory: the limit memory must be between 16 MiB and 64 TiB; got 1MiB",
        ),
        (
            r#"{"task": "x", "network": "http://example.org"}"#,
            "422 network | network: \"http://example.org\" is not a network pattern (it is a URL, not a name); write none, open, or names such as example.org, *.example.org or example.org:443",
        ),
        (
            r#"{"task": "x", "network": 5}"#,
            "422 network | network: \"none\", \"open\", or a list of names is expected at line 1 column 27; correct it",
        ),
        (
            r#"{"task": "x", "when_lost": "cry"}"#,
            "422 when_lost | when_lost: unknown variant `cry`, expected `fail` or `retry` at line 1 column 32; correct it",
        ),
        (r#"{"task": "x", "task": "y"}"#, "422 task | task: it is there twice; send it once"),
    ] {
        let request =
            fixture.request(Method::POST, "/schedule").header("Content-Type", "application/json").body(body.to_owned());
        assert_eq!(fixture.send(request).await.refusal(), *expected, "{body}");
    }
    assert_eq!(fixture.get("/jobs").await["jobs"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_of_the_wrong_type_and_size() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let post = |kind: &str, body: &str| {
        let request = fixture.request(Method::POST, "/schedule").header("Content-Type", kind).body(body.to_owned());
        fixture.send(request)
    };
    let wrong = "415 | the body is of no type that is understood here; send the header Content-Type: application/json, text/plain or multipart/form-data";
    for kind in ["application/x-www-form-urlencoded", "application/xml", "nonsense", ""] {
        assert_eq!(post(kind, "x").await.refusal(), wrong, "{kind}");
    }
    assert_eq!(post("APPLICATION/JSON; charset=utf-8", r#"{"task": "x"}"#).await.status, 202);
    assert_eq!(
        post("multipart/form-data", "x").await.refusal(),
        "415 | the body is of no type that is understood here; send the header Content-Type: multipart/form-data; boundary=…"
    );
    let cut = post("multipart/form-data; boundary=b", "--b\r\nContent-Disposition: form-data; name=\"task\"\r\n\r\nx")
        .await
        .refusal();
    assert!(cut.starts_with("400 | the body could not be read: "), "{cut}");
    let not_text = fixture.request(Method::POST, "/schedule").header("Content-Type", "text/plain").body(&b"\xff"[..]);
    assert_eq!(fixture.send(not_text).await.refusal(), "400 | the body is not text in UTF-8; send the goal as UTF-8");
    assert_eq!(post("text/plain", " \n").await.refusal(), "422 task | task: the goal is empty; say what is to be done");

    // Said beforehand: refused before anything of it is sent.
    let head = "POST /schedule HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nConnection: close\r\n";
    let large = "413 Payload Too Large";
    let announced = fixture.raw(format!("{head}Content-Length: 104857600\r\n\r\n").as_bytes()).await;
    assert!(announced.contains(large) && announced.contains("send large files as multipart/form-data"), "{announced}");
    let file = fixture.data.path().join("large");
    std::fs::File::create(&file).unwrap().set_len(100 << 20).unwrap();
    for expect in ["Expect: 100-continue", "Expect:"] {
        let line = format!(
            "curl -sS --noproxy '*' -H '{expect}' -H 'Content-Type: application/json' --data-binary @{} {}/schedule",
            file.display(),
            fixture.url
        );
        let output = tokio::task::spawn_blocking(move || std::process::Command::new("sh").args(["-c", &line]).output());
        let output = output.await.unwrap().unwrap();
        let answer = String::from_utf8_lossy(&output.stdout);
        assert!(answer.contains("\"status\":413"), "{expect} {answer} {}", String::from_utf8_lossy(&output.stderr));
    }
    // Not said beforehand: refused once it is too much.
    let chunk = bytes::Bytes::from(vec![b' '; 1 << 20]);
    let chunks = futures_util::stream::iter((0..17).map(move |_| Ok::<_, std::io::Error>(chunk.clone())));
    let request = fixture.request(Method::POST, "/schedule").header("Content-Type", "application/json");
    let reply = fixture.send(request.body(reqwest::Body::wrap_stream(chunks))).await;
    assert_eq!(reply.refusal(), "413 | the body is larger than 16 MiB; send large files as multipart/form-data");
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_are_wrong() {
    let fixture = Fixture::with(|settings| settings.jobs_max = Some(0)).await;
    let id = fixture.schedule(json!({ "task": "x" })).await;
    assert_eq!(
        fixture.fetch("/nothing").await.refusal(),
        "404 | there is nothing at /nothing; /docs says what there is"
    );
    let put = fixture.put("/schedule", "").await;
    assert_eq!(put.header("allow"), "POST");
    assert_eq!(
        put.refusal(),
        "405 | PUT is not possible on /schedule; use one of the methods in the Allow header of this answer"
    );
    let invented = fixture.send(fixture.request(Method::from_bytes(b"BREW").unwrap(), &format!("/jobs/{id}"))).await;
    assert_eq!((invented.status, invented.header("allow")), (405, "GET,HEAD,DELETE"));
    for path in ["/status/".to_owned() + &id, "/jobs".to_owned(), format!("/jobs/{id}/log"), "/healthz".to_owned()] {
        let head = fixture.send(fixture.request(Method::HEAD, &path)).await;
        assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
    }
    for (request, expected) in [
        ("GET /jobs?limit=%zz HTTP/1.1\r\nHost: localhost\r\n", "422"),
        ("GET /jobs?label=%ff=1 HTTP/1.1\r\nHost: localhost\r\n", "200"),
        ("GET /jobs HTTP/1.1\r\n", "400"),
        ("GET /jobs HTTP/1.1\r\nHost: localhost\r\nX: \x01\r\n", "400"),
        ("GET /jobs HTTP/1.1\r\nHost: localhost\r\nno colon\r\n", "400"),
        ("garbage\r\n", "400"),
    ] {
        let answer = fixture.raw(format!("{request}Connection: close\r\n\r\n").as_bytes()).await;
        assert_eq!(answer.split(' ').nth(1), Some(expected), "{request}: {answer}");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n\r\n", "x".repeat(1 << 20));
    let answer = fixture.raw(long.as_bytes()).await;
    assert!(answer.starts_with("HTTP/1.1 414") || answer.starts_with("HTTP/1.1 431") || answer.is_empty(), "{answer}");
    let answer = fixture.fetch("/jobs").await;
    assert_eq!(answer.header("x-content-type-options"), "nosniff");
    assert!(!answer.header("x-request-id").is_empty());
}
