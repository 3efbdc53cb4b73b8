//! The table of sandboxes by attacks, from what the cases of a run noted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, Stdio};

use crate::sh::Result;

/// Where cases note that they held: lines of row, sandbox, case.
const FOLDER: &str = "target/matrix";
/// Rows of the table of attacks that must hold on every sandbox.
const ROWS: [&str; 10] = ["21", "22", "23", "24", "25", "26", "27", "28", "30", "36"];
/// Every sandbox.
const WALLS: [&str; 3] = ["native", "docker", "lockdown"];

/// Whether this is root, who alone can start a container engine.
pub(crate) fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|own| std::os::unix::fs::MetadataExt::uid(&own) == 0)
}

/// Forgets what an earlier run noted.
pub(crate) fn forget() -> Result {
    match fs::remove_dir_all(FOLDER) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(format!("{FOLDER}: {error}"))
        }
        _ => Ok(()),
    }
}

/// Runs the suite, and prints the table right before the suite's own last lines. With `whole`, a cell that
/// is missing fails; an engine can be started by root alone, so for others the native column counts.
pub(crate) fn with_table(command: &mut Command, whole: bool) -> Result {
    let mut child = command
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| format!("cargo nextest: {error}"))?;
    let words = child.stderr.take().ok_or("no pipe")?;
    let mut last = Vec::new();
    for line in BufReader::new(words).lines() {
        let line = line.map_err(|error| error.to_string())?;
        if !last.is_empty() || line.trim_start().starts_with("Summary [") {
            last.push(line);
        } else {
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    let status = child.wait().map_err(|error| error.to_string())?;
    let held = read()?;
    print(&held);
    let root = is_root();
    if !root {
        println!("Docker and lockdown: not run, since only root can start an engine for tests.");
    }
    let walls = if root { &WALLS[..] } else { &WALLS[..1] };
    let missing: Vec<String> = ROWS
        .iter()
        .flat_map(|row| walls.iter().map(move |wall| (*row, *wall)))
        .filter(|(row, wall)| !held.contains_key(&((*row).to_owned(), (*wall).to_owned())))
        .map(|(row, wall)| format!("row {row} on {wall}"))
        .collect();
    if whole && !missing.is_empty() {
        println!("no case held: {}", missing.join(", "));
    }
    for line in last {
        let _ = writeln!(std::io::stderr(), "{line}");
    }
    if !status.success() {
        return Err("tests failed".into());
    }
    if whole && !missing.is_empty() {
        return Err(format!("no case held: {}", missing.join(", ")));
    }
    Ok(())
}

type Held = BTreeMap<(String, String), BTreeSet<String>>;

fn read() -> Result<Held> {
    let mut held = Held::new();
    for entry in fs::read_dir(FOLDER).into_iter().flatten().flatten() {
        let text = fs::read_to_string(entry.path()).map_err(|error| error.to_string())?;
        for line in text.lines() {
            if let [row, wall, case] = line.split('\t').collect::<Vec<_>>()[..] {
                let cell = held.entry((row.to_owned(), wall.to_owned())).or_default();
                cell.insert(case.to_owned());
            }
        }
    }
    Ok(held)
}

fn print(held: &Held) {
    println!("\nattacks by sandbox: how many cases held");
    println!("{:>6}{}", "row", WALLS.map(|wall| format!("{wall:>10}")).concat());
    for row in ROWS {
        let cells = WALLS.map(|wall| {
            let cases = held.get(&(row.to_owned(), wall.to_owned()));
            let cell = cases.map_or_else(|| "-".to_owned(), |cases| cases.len().to_string());
            format!("{cell:>10}")
        });
        println!("{row:>6}{}", cells.concat());
    }
}
