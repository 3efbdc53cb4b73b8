//! How long the check of a lock takes over many files, against `sha256sum` over the same files.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::bundle::Bundle;
use crate::{Figure, Result};

/// Bytes of a file: 10,000 of them are 200 MiB.
const FILE: usize = 200 * 1024 * 1024 / 10_000;
/// Files of a skill.
const SKILL: usize = 100;

/// Runs all of them in turn, round after round. The files are in the page cache.
pub(crate) fn measure(program: &Path, rounds: usize) -> Result<Vec<Figure>> {
    let sizes = [100, 1_000, 10_000];
    let bundles: Vec<Bundle> =
        sizes.iter().map(|files| filled(program, *files)).collect::<Result<_>>()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let most = &bundles[2];
    let list = list(most)?;
    let sums = || {
        let mut command = Command::new("xargs");
        command.args(["-0", "-P", &cores.to_string(), "-n"]);
        command.arg(sizes[2].div_ceil(cores).to_string()).arg("sha256sum");
        command.current_dir(most.project());
        command.stdin(fs::File::open(&list).map_err(|e| format!("{}: {e}", list.display()))?);
        Ok::<_, String>(command)
    };
    let check = |bundle: &Bundle| {
        let mut command = bundle.command(&["lock", "--check"]);
        command.stdin(Stdio::null());
        command
    };
    let mut times = [const { Vec::<Duration>::new() }; 4];
    // The first round only warms up.
    for round in 0..=rounds {
        let mut took = vec![once("sha256sum", sums()?)?];
        for bundle in &bundles {
            took.push(once("ringfence lock --check", check(bundle))?);
        }
        if round > 0 {
            took.into_iter().zip(&mut times).for_each(|(time, all)| all.push(time));
        }
    }
    let names = ["sha256sum, 10,000 files", "100 files", "1,000 files", "10,000 files"];
    println!("\n{rounds} rounds, one after the other in each; milliseconds; {cores} cores");
    println!("| lock check | median | fastest | slowest |\n|---|---|---|---|");
    let mut medians = Vec::new();
    for (name, all) in names.iter().zip(&mut times) {
        all.sort();
        let ms = |d: &Duration| d.as_secs_f64() * 1000.0;
        let median = ms(&all[all.len() / 2]);
        println!("| {name} | {median:.1} | {:.1} | {:.1} |", ms(&all[0]), ms(&all[all.len() - 1]));
        medians.push(median);
    }
    let (sums, ours) = (medians[0], medians[3]);
    let each: Vec<f64> = medians[1..]
        .iter()
        .zip([100.0, 1e3, 1e4])
        .map(|(time, files)| time * 1e3 / files)
        .collect();
    Ok(vec![
        Figure {
            name: "lock check against sha256sum",
            measured: format!("{:.2} times ({ours:.0} ms to {sums:.0} ms)", ours / sums),
            target: "at most 1.5 times",
            met: ours <= 1.5 * sums,
        },
        Figure {
            name: "lock check by number of files",
            measured: format!(
                "{:.1}, {:.1}, {:.1} us a file at 100, 1,000, 10,000",
                each[0], each[1], each[2]
            ),
            target: "no more a file than with a tenth of the files",
            met: each[2] <= 1.1 * each[1] && each[1] <= 1.1 * each[0],
        },
    ])
}

/// A trusted bundle whose skills hold this many files.
fn filled(program: &Path, files: usize) -> Result<Bundle> {
    let mut manifest = "version = 1\n\n[agent]\nname = \"bench\"\n".to_owned();
    for skill in 0..files / SKILL {
        // Writing to a string cannot fail.
        let _ = write!(manifest, "\n[skills.s{skill}]\npath = \"./skills/s{skill}\"\n");
    }
    Bundle::with(program, &manifest, |folder| {
        for nth in 0..files {
            let skill = folder.join(format!("skills/s{}", nth / SKILL));
            let file = skill.join(format!("part-{}/{nth}.md", nth % 10));
            fs::create_dir_all(file.parent().unwrap_or(&skill))?;
            fs::write(file, text(nth))?;
        }
        Ok(())
    })
}

/// Prose of the right length, no two files alike, with what is not ASCII now and then.
fn text(nth: usize) -> String {
    let mut text = format!("# Part {nth}\n\n- ✔️ **été**, then ⚠️\n\n");
    let mut state = nth as u64 + 1;
    while text.len() < FILE - 12 {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let _ = write!(text, "{:x}{}", state >> 40, if state >> 61 == 0 { '\n' } else { ' ' });
    }
    text.extend(std::iter::repeat_n('.', FILE - text.len()));
    text
}

/// The paths of all files, as `xargs -0` wants them.
fn list(bundle: &Bundle) -> Result<std::path::PathBuf> {
    let find = Command::new("find")
        .args([".ringfence/skills", "-type", "f", "-print0"])
        .current_dir(bundle.project())
        .output()
        .map_err(|e| format!("find: {e}"))?;
    let list = bundle.project().join("list");
    fs::write(&list, find.stdout).map_err(|e| e.to_string())?;
    Ok(list)
}

fn once(name: &str, mut command: Command) -> Result<Duration> {
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let status = command.status().map_err(|e| format!("{name}: {e}"))?;
    let time = start.elapsed();
    if status.success() { Ok(time) } else { Err(format!("{name} failed ({status})")) }
}
