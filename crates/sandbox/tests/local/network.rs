//! The network: nothing, or what the policy names, through the proxy.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};

use cofferdam_sandbox::egress::ConnectionRecord;
use cofferdam_sandbox::local::{Sandbox, SandboxSpec};

use crate::support::{Texts, runtime, sandbox, sh};

/// A web server of the host's, on a loopback address that is not the sandbox's own.
fn serve() -> u16 {
    let listener = TcpListener::bind("127.0.0.2:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut request = [0; 4096];
            let _ = connection.read(&mut request);
            let _ = connection.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nConnection: close\r\n\r\nhello\n");
        }
    });
    port
}

async fn with_network(policy: &str, log: Arc<Mutex<Vec<String>>>) -> Sandbox {
    let spec = SandboxSpec { network: policy.parse().unwrap(), ..SandboxSpec::default() };
    let record = move |record: &ConnectionRecord| log.lock().unwrap().push(serde_json::to_string(record).unwrap());
    runtime().launch(&spec, Some(Arc::new(record))).await.unwrap()
}

#[tokio::test]
async fn none_is_nothing_but_its_own_loopback() {
    let port = serve();
    let sandbox = sandbox().await;
    let finished = sh(&sandbox, &format!("curl -sS --max-time 5 http://127.0.0.2:{port}/; echo $?")).await;
    assert!(finished.stdout_text().ends_with("7\n"), "{}", finished.stdout_text());
    let own = "python3 -m http.server 8000 --bind 127.0.0.1 >/dev/null 2>&1 & \
               for n in $(seq 100); do curl -sf http://localhost:8000/ >/dev/null && echo own && break; sleep 0.05; done";
    assert_eq!(sh(&sandbox, own).await.stdout_text(), "own\n");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn what_is_named_is_reached_and_all_is_logged() {
    let port = serve();
    let log = Arc::new(Mutex::new(Vec::new()));
    let sandbox = with_network(&format!("127.0.0.2:{port}"), log.clone()).await;
    let finished = sh(
        &sandbox,
        &format!("curl -sS http://127.0.0.2:{port}/; curl -sS -p -x $http_proxy http://127.0.0.2:{port}/"),
    )
    .await;
    assert_eq!(finished.stdout_text(), "hello\nhello\n", "{}", finished.stderr_text());
    let refused =
        sh(&sandbox, "curl -sS http://127.0.0.3:1/; curl -s -o /dev/null -w '%{http_code}' http://example.org/").await;
    assert!(refused.stdout_text().contains("not on this sandbox's allow-list"), "{}", refused.stdout_text());
    assert!(refused.stdout_text().ends_with("403"));
    let log = log.lock().unwrap().join("\n");
    assert!(log.contains("\"allowed\"") && log.contains("\"refused\"") && log.contains("example.org"), "{log}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn what_ignores_the_proxy_fails_at_once() {
    let sandbox = with_network("open", Arc::default()).await;
    let script = "import socket, time\nbegan = time.time()\ntry:\n  socket.create_connection((\"192.0.2.1\", 80), 30)\nexcept OSError as error:\n  print(error.errno, time.time() - began < 5)";
    assert_eq!(sh(&sandbox, &format!("python3 -c '{script}'")).await.stdout_text(), "101 True\n");
    sandbox.destroy().await.unwrap();
}

/// Real clients against real servers of their kind, unmodified, through the proxy.
#[tokio::test]
async fn pip_npm_and_git_work_through_the_proxy() {
    let directory = tempfile::tempdir().unwrap();
    let root = directory.path();
    let setup = r#"
        set -e
        mkdir -p simple/greeting pkg/greeting && cd pkg
        printf 'def hi(): return "hi from pip"\n' > greeting/__init__.py
        python3 - <<'END'
import zipfile
with zipfile.ZipFile('../simple/greeting/greeting-1.0-py3-none-any.whl', 'w') as z:
    z.write('greeting/__init__.py')
    z.writestr('greeting-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: greeting\nVersion: 1.0\n')
    z.writestr('greeting-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
    z.writestr('greeting-1.0.dist-info/RECORD', '')
END
        cd .. && echo '<a href="greeting-1.0-py3-none-any.whl">greeting-1.0-py3-none-any.whl</a>' > simple/greeting/index.html
        mkdir package && echo '{"name":"greeting","version":"1.0.0","bin":{"greet":"greet.js"}}' > package/package.json
        printf '#!/usr/bin/env node\nconsole.log("hi from npm")\n' > package/greet.js && tar czf greeting-1.0.0.tgz package
        git init -q work && cd work && echo x > file && git add file && git -c user.email=a@b.c -c user.name=n commit -qm one
        cd .. && git clone -q --bare work repo.git && git -C repo.git update-server-info
    "#;
    let prepared = std::process::Command::new("bash")
        .args(["-c", setup])
        .current_dir(root)
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .status()
        .unwrap();
    assert!(prepared.success());
    let mut server = std::process::Command::new("python3")
        .args(["-u", "-m", "http.server", "0", "--bind", "127.0.0.2"])
        .current_dir(root)
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::null())
        .spawn()
        .unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(server.stdout.take().unwrap()), &mut line).unwrap();
    let port: u16 = line.split("port ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();

    let sandbox = with_network(&format!("127.0.0.2:{port}"), Arc::default()).await;
    let script = format!(
        "set -e; base=http://127.0.0.2:{port}\n\
         pip install -q --trusted-host 127.0.0.2 --index-url $base/simple greeting && python3 -c 'import greeting; print(greeting.hi())'\n\
         npm install -g --silent $base/greeting-1.0.0.tgz >/dev/null && greet\n\
         git clone -q $base/repo.git cloned && cat cloned/file"
    );
    let finished = sh(&sandbox, &script).await;
    let _ = server.kill();
    let _ = server.wait();
    assert_eq!(finished.stdout_text(), "hi from pip\nhi from npm\nx\n", "{}", finished.stderr_text());
    sandbox.destroy().await.unwrap();
}
