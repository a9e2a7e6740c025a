//! Who may ask: requests by a name of ours, and not from pages of others.

use serde_json::json;

use crate::support::Fixture;

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_others_and_other_names_are_refused() {
    let fixture = Fixture::with(|settings| {
        settings.jobs_max = Some(0);
        settings.allowed_hosts = vec!["coffer.example".to_owned()];
    })
    .await;
    let port = fixture.authority().rsplit(':').next().unwrap();
    let status = async |host: &str, headers: &[&str]| {
        let headers: String = headers.iter().map(|line| format!("{line}\r\n")).collect();
        let body = r#"{"task": "x"}"#;
        let request = format!(
            "POST /schedule HTTP/1.1\r\nHost: {host}\r\n{headers}Content-Type: application/json\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = fixture.raw(request.as_bytes()).await;
        answer.split(' ').nth(1).unwrap().to_owned()
    };
    let own = format!("localhost:{port}");
    for (host, headers, expected) in [
        (own.as_str(), vec![], "202"),
        ("127.0.0.1", vec![], "202"),
        ("[::1]:8000", vec![], "202"),
        ("coffer.example", vec![], "202"),
        ("evil.example", vec![], "421"),
        ("job.localhost", vec![], "421"),
        ("127.0.0.1.evil.example", vec![], "421"),
        (own.as_str(), vec![format!("Origin: http://{own}")], "202"),
        (own.as_str(), vec!["Origin: http://evil.example".to_owned()], "403"),
        (own.as_str(), vec!["Origin: null".to_owned()], "403"),
        (own.as_str(), vec![format!("Origin: http://8000-job.{own}")], "403"),
        (own.as_str(), vec!["Sec-Fetch-Site: cross-site".to_owned()], "403"),
        (own.as_str(), vec!["Sec-Fetch-Site: same-site".to_owned()], "403"),
        (own.as_str(), vec!["Sec-Fetch-Site: same-origin".to_owned()], "202"),
    ] {
        let lines: Vec<&str> = headers.iter().map(String::as_str).collect();
        assert_eq!(status(host, &lines).await, expected, "{host} {headers:?}");
    }
    let jobs = fixture.get("/jobs").await;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 6, "what was refused left nothing");
    let request = fixture.request(reqwest::Method::GET, "/jobs").header("Host", "evil.example");
    assert_eq!(
        fixture.send(request).await.refusal(),
        "421 | the request is for the host evil.example, which is not known to be this server; use localhost, or start the server with --allowed-host evil.example if that is its name"
    );
    let request = fixture.request(reqwest::Method::OPTIONS, "/schedule").header("Origin", "http://evil.example");
    let preflight = fixture.send(request.header("Access-Control-Request-Method", "POST")).await;
    assert_eq!(preflight.status, 403);
    assert!(
        preflight.headers.keys().all(|name| !name.as_str().starts_with("access-control")),
        "{:?}",
        preflight.headers
    );
    // Links begin with the name that the client knows the server by.
    let view =
        fixture.send(fixture.request(reqwest::Method::GET, "/jobs").header("Host", "coffer.example")).await.json();
    let url = view["jobs"][0]["status_url"].as_str().unwrap();
    assert!(url.starts_with("http://coffer.example/status/"), "{url}");
    assert_eq!(view["jobs"][0]["labels"], json!({}));
}
