//! `cofferdam serve`: its settings and where they come from, and one server for a data directory.

mod support;

use rustix::process::Signal;
use support::{Home, signal, texts, wait_for, wait_until};

/// The line of a setting in the output of `--print-config`.
fn setting(home: &Home, arguments: &[&str], environment: &[(&str, &str)], name: &str) -> String {
    let mut command = home.command(&[&["serve", "--print-config"], arguments].concat());
    let (stdout, stderr, code) = texts(command.envs(environment.iter().copied()).output().unwrap());
    assert_eq!((stderr.as_str(), code), ("", Some(0)));
    let is_it = |line: &&str| line.trim_start_matches("# ").starts_with(&format!("{name} = "));
    stdout.lines().find(is_it).unwrap().to_owned()
}

#[test]
fn a_flag_goes_before_the_environment_that_before_the_file_and_that_before_the_default() {
    let home = Home::new();
    let queue = |arguments: &[&str], environment: &[(&str, &str)]| setting(&home, arguments, environment, "queue-max");
    let (flag, variable) = (["--queue-max", "1"], [("COFFERDAM_QUEUE_MAX", "2")]);
    assert_eq!(queue(&[], &[]), "# queue-max = 100000");
    home.file("config/cofferdam/config.toml", "queue_max = 3\nallowed-host = [\"a.test\", \"b.test\"]\n");
    assert_eq!(queue(&[], &[]), "queue-max = 3");
    assert_eq!(queue(&[], &variable), "queue-max = 2");
    assert_eq!(queue(&flag, &variable), "queue-max = 1");
    let other = home.file("other.toml", "job-timeout = \"90s\"\n");
    assert_eq!(queue(&["--config", &other], &[]), "# queue-max = 100000");
    assert_eq!(setting(&home, &["--config", &other], &[], "job-timeout"), "job-timeout = \"90s\"");
    assert_eq!(setting(&home, &[], &[("COFFERDAM_CONFIG", &other)], "job-timeout"), "job-timeout = \"90s\"");
    assert_eq!(setting(&home, &[], &[], "allowed-host"), "allowed-host = [\"a.test\", \"b.test\"]");
    let hosts = [("COFFERDAM_ALLOWED_HOST", "c.test,d.test")];
    assert_eq!(setting(&home, &[], &hosts, "allowed-host"), "allowed-host = [\"c.test\", \"d.test\"]");
}

/// What is printed is a file that means the same.
#[test]
fn the_printed_configuration_can_be_read_again() {
    let home = Home::new();
    let flags = ["--log-max", "5MiB", "--read-only", "/opt:/srv", "--log-format", "json", "--jobs-max", "7"];
    let printed = home.ok(&[&["serve", "--print-config"], flags.as_slice()].concat());
    let file = home.file("again.toml", &printed);
    let mut again = home.command(&["serve", "--print-config", "--config", &file]);
    let (again, _, code) = texts(again.output().unwrap());
    assert_eq!((again, code), (printed, Some(0)));
}

#[test]
fn mistakes_in_the_file_are_named_with_file_and_setting() {
    let home = Home::new();
    let cases = [
        ("ram = 5", "there is no setting ram; all of them are shown by: cofferdam serve --print-config"),
        ("config = \"x\"", "there is no setting config; all of them are shown by: cofferdam serve --print-config"),
        ("pool = \"many\"", "pool must be a whole number"),
        ("listen = true", "listen must be a text in quotes"),
        ("read-only = \"/opt\"", "read-only must be a list of texts"),
        ("job-timeout = \"soon\"", "job-timeout cannot be \"soon\": write a duration such as 30s, 5m or 500ms"),
        ("jobs-max = -1", "jobs-max cannot be -1: -1 is not in 0..=4294967295"),
        ("pool = 1\nPool =", "line 2: string values must be quoted, expected literal string"),
        ("queue-max = 1\nqueue_max = 2", "queue_max is there twice, with a dash and with an underscore; keep one"),
    ];
    for (content, problem) in cases {
        let file = home.file("wrong.toml", content);
        let (stdout, stderr, code) = home.run(&["serve", "--config", &file]);
        assert_eq!((stdout, stderr, code), (String::new(), format!("cofferdam: {file}: {problem}\n"), Some(103)));
    }
    let (_, stderr, code) = home.run(&["serve", "--config", "/no/such.toml"]);
    assert_eq!(
        (stderr.as_str(), code),
        ("cofferdam: /no/such.toml: it cannot be read: No such file or directory (os error 2)\n", Some(103))
    );
    // The commands that start a server of their own read it as well.
    home.file("config/cofferdam/config.toml", "ram = 5");
    let (_, stderr, code) = home.run(&["ps"]);
    assert!(stderr.contains("there is no setting ram") && code == Some(103), "{stderr}");
}

#[test]
fn a_second_server_on_a_data_directory_is_refused_and_told_of_the_first() {
    let home = Home::new();
    let first = home.serve(&[]);
    let running = cofferdam_server::running_server(&home.data()).unwrap();
    let (stdout, stderr, code) = home.run(&["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!((stdout.as_str(), code), ("", Some(107)));
    assert!(stderr.contains(&running.url) && stderr.contains(&running.pid.to_string()), "{stderr}");
    assert_eq!(first.stop(), Some(0));
    assert!(cofferdam_server::running_server(&home.data()).is_none());
}

#[test]
fn a_second_signal_ends_a_server_that_waits_for_its_jobs() {
    let home = Home::new();
    let mut server = home.serve(&["--drain-timeout", "10m"]);
    let steps = home.steps(&["echo on; sleep 600"]);
    let job = home.ok(&["run", "--detach", &steps]).trim().to_owned();
    wait_until("the job runs", || home.run(&["logs", &job]).0.ends_with("on\n"));
    signal(&server.child, Signal::TERM);
    // Two signals at once are one: the second is sent until it is heard as a second.
    wait_until("the server has ended", || {
        signal(&server.child, Signal::TERM);
        server.child.try_wait().unwrap().is_some()
    });
    assert_eq!(wait_for(&mut server.child), Some(143));
}

#[test]
fn a_server_that_listens_everywhere_is_reached_from_here() {
    let home = Home::new();
    for address in ["0.0.0.0:0", "[::]:0"] {
        let server = home.serve_at(address, &[]);
        assert_eq!(home.json(&["ps", "--json"])["jobs"], serde_json::json!([]), "{address}");
        assert_eq!(server.stop(), Some(0));
    }
}

#[test]
fn a_server_that_is_not_there_is_named() {
    let home = Home::new();
    let (stdout, stderr, code) = home.run(&["ps", "--server", "http://127.0.0.1:9"]);
    assert_eq!(
        (stdout.as_str(), stderr.as_str(), code),
        (
            "",
            "cofferdam: the server at http://127.0.0.1:9 does not answer: Connection refused (os error 111); start one with: cofferdam serve\n",
            Some(107)
        )
    );
    let (_, stderr, code) = home.run(&["ps", "--server", "localhost:8000"]);
    assert_eq!(
        (stderr.as_str(), code),
        ("cofferdam: --server localhost:8000 is not an address such as http://127.0.0.1:8000\n", Some(2))
    );
}
