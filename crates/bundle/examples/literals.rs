//! Scans folders for literal secrets and prints what is found, without the secrets: for measuring
//! how often the rules are wrong. `cargo run --example literals -- FOLDER…`

#![allow(clippy::print_stdout, reason = "a developer's tool")]

use std::path::{Path, PathBuf};

use ringfence_bundle::literals::{Context, find};

fn files(folder: &Path, into: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten() {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(&entry.path(), into),
            Ok(kind) if kind.is_file() => into.push(entry.path()),
            _ => {}
        }
    }
}

fn main() {
    let mut all = Vec::new();
    for folder in std::env::args_os().skip(1) {
        files(folder.as_ref(), &mut all);
    }
    let (mut bytes, mut hit, mut found) = (0, 0, 0);
    let begun = std::time::Instant::now();
    for file in &all {
        let Ok(text) = std::fs::read(file) else { continue };
        bytes += text.len();
        let literals = find(&text, Context::File(file));
        hit += usize::from(!literals.is_empty());
        found += literals.len();
        for literal in literals {
            println!("{}:{literal:?}", file.display());
        }
    }
    let time = begun.elapsed().as_secs_f64();
    println!("{} files, {bytes} bytes, {hit} files with {found} finds, {time:.1} s", all.len());
}
