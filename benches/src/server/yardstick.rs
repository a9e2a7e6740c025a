//! The server that Cofferdam's is compared with: `benches/yardstick/server.py`, in the Python environment that
//! `scripts/setup bench` makes for it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use super::process::{ServerProcess, free_address};

/// How many worker processes it is given; which is faster depends on the machine, and the faster one counts.
#[derive(Debug, Clone, Copy)]
pub enum Workers {
    One,
    Two,
}

impl Workers {
    pub const ALL: [Self; 2] = [Self::One, Self::Two];

    pub fn name(self) -> &'static str {
        match self {
            Self::One => "FastAPI, 1 worker",
            Self::Two => "FastAPI, 2 workers",
        }
    }
}

#[derive(Debug)]
pub struct Yardstick {
    python: PathBuf,
    pub version: String,
}

/// The environment, or why there is none.
pub fn find() -> Result<Yardstick, String> {
    let project = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("benches are in the project");
    let python = project.join("target/tools/yardstick/bin/python");
    let code = "import sys, fastapi, uvicorn, uvloop, httptools\n\
                print(f'{fastapi.__version__}, uvicorn {uvicorn.__version__}, Python {sys.version.split()[0]}')";
    let output = Command::new(&python).args(["-c", code]).output();
    let output = output.ok().filter(|output| output.status.success());
    let output = output.ok_or("not installed; run: scripts/setup bench")?;
    Ok(Yardstick { python, version: String::from_utf8_lossy(&output.stdout).trim().to_owned() })
}

impl Yardstick {
    pub fn start(&self, workers: Workers, tasks: &Path) -> Result<ServerProcess> {
        let address = free_address()?;
        let mut command = Command::new(&self.python);
        command.args(["-m", "uvicorn", "server:app", "--host", "127.0.0.1", "--port", &address.port().to_string()]);
        let workers = match workers {
            Workers::One => "1",
            Workers::Two => "2",
        };
        command.args(["--workers", workers, "--loop", "uvloop", "--http", "httptools"]);
        // A log of requests would only slow it down.
        command.args(["--no-access-log", "--log-level", "warning"]);
        command.current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("yardstick")).env("TASKS", tasks);
        ServerProcess::start(command, address, "/openapi.json", &tasks.with_extension("log"))
    }
}
