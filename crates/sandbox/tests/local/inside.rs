//! What the inside looks like: who one is, what is there, what is not.

use std::path::PathBuf;

use cofferdam_sandbox::local::{LocalConfig, LocalRuntime, SandboxSpec};

use crate::support::{Texts, new_id, sandbox, sh, shell};

#[tokio::test]
async fn the_user_is_agent_without_any_privilege() {
    let sandbox = sandbox().await;
    let finished =
        sh(&sandbox, "id -un; id -u; echo ~; hostname; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status").await;
    let text = finished.stdout_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines[..4], ["agent", "1000", "/home/agent", "sandbox"]);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(lines.contains(&format!("{set}:\t0000000000000000").as_str()), "{text}");
    }
    assert!(lines.contains(&"NoNewPrivs:\t1") && lines.contains(&"Seccomp:\t2"), "{text}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn nothing_of_the_hosts_home_state_or_environment_is_there() {
    let sandbox = sandbox().await;
    let listed = sh(&sandbox, "ls -A / /home /var /run /root /home/agent 2>/dev/null; env").await.stdout_text();
    let root = "/:\napp\nbin\ndev\netc\nhome\n";
    assert!(listed.starts_with(root), "{listed}");
    assert!(
        listed.contains("/home:\nagent\n") && listed.contains("/run:\n\n") && !listed.contains("/root:"),
        "{listed}"
    );
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("CARGO_") || name == "OLDPWD") {
        assert!(!listed.contains(&format!("{name}=")), "{name} came through");
    }
    // The host's own machine name, users and mounts are not told either.
    let etc = sh(&sandbox, "cat /etc/passwd; ls /etc").await.stdout_text();
    assert!(!etc.contains("root:") && !etc.contains("shadow") && !etc.contains("fstab"), "{etc}");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn only_the_writable_places_are_writable() {
    let sandbox = sandbox().await;
    let try_write = "for d in / /usr /usr/bin /etc /dev /proc /opt /var /home; do touch $d/x 2>/dev/null && echo wrote $d; done; \
                     for d in /workspace /app /tmp /var/tmp /home/agent /dev/shm /run; do touch $d/y || echo failed $d; done; ls /workspace";
    assert_eq!(sh(&sandbox, try_write).await.stdout_text(), "y\n");
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn ordinary_tools_work() {
    let sandbox = sandbox().await;
    let script = r#"
        set -e
        python3 -c 'import socket, ssl, sqlite3, multiprocessing as m; print(m.Pool(2).map(abs, [-1, -2]))'
        node -e 'console.log([1, 2].map(x => x * 2), require("os").userInfo().username)'
        git init -q repo && cd repo && git config user.email a@b.c && git config user.name n && echo x > f && git add f && git commit -qm first && git log --oneline | wc -l
        python3 -m venv --without-pip venv && venv/bin/python -c 'print("venv")'
        cat <(echo process substitution) /dev/null
    "#;
    let request = cofferdam_protocol::exec::ExecRequest {
        argv: ["bash", "-c", script].map(str::to_owned).to_vec(),
        ..Default::default()
    };
    let finished = sandbox.client().run(&new_id(), &request).await.unwrap();
    assert_eq!(
        (finished.stdout_text().as_str(), finished.stderr_text().as_str()),
        ("[1, 2]\n[ 2, 4 ] agent\n1\nvenv\nprocess substitution\n", "")
    );
    sandbox.destroy().await.unwrap();
}

#[tokio::test]
async fn further_directories_are_offered_read_only() {
    let toolchain = tempfile::Builder::new().prefix("toolchain").tempdir_in("/tmp").unwrap();
    std::fs::create_dir(toolchain.path().join("bin")).unwrap();
    let tool = toolchain.path().join("bin/my-tool");
    std::fs::write(&tool, "#!/bin/sh\necho tool works\n").unwrap();
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&tool, PermissionsExt::from_mode(0o755)).unwrap();
    std::fs::set_permissions(toolchain.path(), PermissionsExt::from_mode(0o755)).unwrap();
    // Below /tmp, which is the sandbox's own: the nearer name wins.
    let config = LocalConfig { read_only: vec![toolchain.path().to_owned()], ..LocalConfig::default() };
    let runtime = LocalRuntime::new(&config).unwrap();
    let sandbox = runtime.launch(&SandboxSpec::default(), None).await.unwrap();
    let script = format!("my-tool; touch {}/x 2>/dev/null || echo read-only", toolchain.path().display());
    let finished = sandbox.client().run(&new_id(), &shell(&script)).await.unwrap();
    assert_eq!(finished.stdout_text(), "tool works\nread-only\n");
    sandbox.destroy().await.unwrap();

    for (path, part) in [
        ("/no/such", "No such file"),
        ("relative", "from the root"),
        ("/proc", "taken inside"),
        ("/etc/hostname", "not a directory"),
    ] {
        let config = LocalConfig { read_only: vec![PathBuf::from(path)], ..LocalConfig::default() };
        let error = LocalRuntime::new(&config).unwrap_err().to_string();
        assert!(error.contains(part), "{path}: {error}");
    }
}
