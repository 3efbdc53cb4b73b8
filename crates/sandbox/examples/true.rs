//! Times how long a sandbox takes from nothing to its end: `true` in a new one, over and over.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::io::{Read, Write};
use std::time::Instant;

use ringfence_sandbox::{Limits, Spec, Streams, native};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    if native::is_init() {
        native::init_main();
    }
    let rounds: usize = std::env::args().nth(1).map_or(Ok(20), |n| n.parse())?;
    let folder = std::env::temp_dir().join(format!("ringfence-example-{}", std::process::id()));
    let (project, run_dir) = (folder.join("project"), folder.join("run"));
    std::fs::create_dir_all(&project)?;
    std::fs::create_dir_all(&run_dir)?;
    let spec = Spec {
        command: vec!["/bin/true".into()],
        arg0: "true".into(),
        env: Vec::new(),
        project: project.canonicalize()?,
        mounts: Vec::new(),
        read: Vec::new(),
        limits: Limits::default(),
        streams: Streams::Inherit,
        stderr: None,
        listen: vec![41000, 41001],
        run_dir,
        must_not_see: Vec::new(),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let mut times = Vec::new();
    for _ in 0..rounds {
        let start = Instant::now();
        let mut prepared = native::prepare(&spec)?;
        let built = start.elapsed();
        for listener in prepared.listeners() {
            std::thread::spawn(move || {
                for mut stream in listener.incoming().flatten() {
                    let _ = stream.read(&mut [0; 512]);
                    let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n");
                }
            });
        }
        prepared.probe()?;
        let probed = start.elapsed();
        let mut running = prepared.release()?;
        let released = start.elapsed();
        runtime.block_on(running.wait())?;
        times.push((start.elapsed(), built, probed, released));
    }
    times.sort();
    let (total, built, probed, released) = times[times.len() / 2];
    println!("built {built:?}, probed {probed:?}, released {released:?}, ended {total:?} (median)");
    std::fs::remove_dir_all(folder)?;
    Ok(())
}
