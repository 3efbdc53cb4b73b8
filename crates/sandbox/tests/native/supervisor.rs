//! One sandbox, supervised as the real program does it.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use ringfence_sandbox::{Error, Exit, Limits, Missing, Mount, Rule, Spec, Streams, native};
use serde::{Deserialize, Serialize};

/// What the test wants, in a form that can be handed to another process.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Wish {
    pub command: Vec<String>,
    pub env: Vec<(String, String)>,
    pub project: PathBuf,
    pub mounts: Vec<(PathBuf, Rule, Option<Placeholder>)>,
    pub read: Vec<PathBuf>,
    pub run_dir: PathBuf,
    pub must_not_see: Vec<PathBuf>,
    pub listen: Vec<u16>,
    pub memory: Option<u64>,
    pub disk: Option<u64>,
    pub pids: Option<u64>,
    pub cpus: Option<f64>,
    pub piped: bool,
    pub probe: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Placeholder {
    Dir,
    File(String),
    Keep,
}

/// What the supervisor found out, written to `report.json` of the run's folder.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Report {
    pub pid: u32,
    pub probes: Vec<ringfence_sandbox::Probe>,
    pub memory: u64,
    pub pids: u64,
}

/// Status of the supervisor when the sandbox could not be built.
pub const REFUSED: u8 = 111;

pub fn main() -> ExitCode {
    let mut text = std::env::args().nth(2).unwrap();
    let wish: Wish = serde_json::from_str(&std::mem::take(&mut text)).unwrap();
    if std::env::var_os("ONLY_TRY").is_some() {
        native::available().unwrap();
        println!("available");
        return ExitCode::SUCCESS;
    }
    match supervise(&wish) {
        Ok(Exit::Code(code)) => ExitCode::from(u8::try_from(code).unwrap()),
        Ok(Exit::Signal(signal)) => ExitCode::from(128 + u8::try_from(signal).unwrap()),
        Err(error) => {
            eprintln!("refused: {error}");
            ExitCode::from(REFUSED)
        }
    }
}

fn supervise(wish: &Wish) -> Result<Exit, Error> {
    let spec = spec(wish);
    let mut report = Report::default();
    let mut prepared = native::prepare(&spec)?;
    for listener in prepared.listeners() {
        std::thread::spawn(move || serve(&listener));
    }
    if wish.probe {
        report.probes = prepared.probe()?;
    }
    // Before the agent can say anything: whoever hears it finds the report.
    report.pid = prepared.pid();
    write(wish, &report);
    let mut running = prepared.release()?;
    assert_eq!(running.pid(), report.pid);
    let streams = running.take_streams();
    assert_eq!(streams.is_some(), wish.piped);
    let relay = streams.map(|(stdin, stdout)| {
        drop(stdin);
        std::thread::spawn(move || {
            std::io::copy(&mut std::fs::File::from(stdout), &mut std::io::stdout()).unwrap()
        })
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let exit = runtime.block_on(async {
        loop {
            tokio::select! {
                exit = running.wait() => break exit,
                () = tokio::time::sleep(Duration::from_millis(50)) => {
                    let usage = running.usage();
                    report.memory = report.memory.max(usage.memory);
                    report.pids = report.pids.max(usage.pids);
                }
            }
        }
    })?;
    if let Some(relay) = relay {
        relay.join().unwrap();
    }
    write(wish, &report);
    Ok(exit)
}

fn write(wish: &Wish, report: &Report) {
    let new = wish.run_dir.join("report.new");
    std::fs::write(&new, serde_json::to_vec(report).unwrap()).unwrap();
    std::fs::rename(new, wish.run_dir.join("report.json")).unwrap();
}

fn serve(listener: &TcpListener) {
    for stream in listener.incoming() {
        let mut stream = stream.unwrap();
        let mut buffer = [0; 1024];
        let _ = stream.read(&mut buffer);
        let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
    }
}

fn spec(wish: &Wish) -> Spec {
    let missing = |placeholder: &Option<Placeholder>| match placeholder {
        None => Missing::Present,
        Some(Placeholder::Dir) => Missing::Dir,
        Some(Placeholder::File(text)) => Missing::File(text.clone().into_bytes()),
        Some(Placeholder::Keep) => Missing::Keep,
    };
    let mount = |(path, rule, placeholder): &(PathBuf, Rule, Option<Placeholder>)| Mount {
        path: path.clone(),
        rule: *rule,
        missing: missing(placeholder),
    };
    Spec {
        command: wish.command.iter().map(Into::into).collect(),
        arg0: wish.command[0].clone().into(),
        env: wish.env.iter().map(|(name, value)| (name.into(), value.into())).collect(),
        project: wish.project.clone(),
        mounts: wish.mounts.iter().map(mount).collect(),
        read: wish.read.clone(),
        limits: Limits {
            memory: wish.memory,
            disk: wish.disk,
            pids: wish.pids,
            cpus: wish.cpus,
            duration: None,
        },
        streams: if wish.piped { Streams::Piped } else { Streams::Inherit },
        stderr: wish.piped.then(|| wish.run_dir.join("stderr.log")),
        listen: wish.listen.clone(),
        run_dir: wish.run_dir.clone(),
        must_not_see: wish.must_not_see.clone(),
    }
}
