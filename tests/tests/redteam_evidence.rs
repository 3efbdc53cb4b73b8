//! Row 31: evidence that was edited, cut, deleted, forked, torn or signed by another. Verify names the
//! file and the line, two writers never fork it, and a failed append stops the call.

use std::fs;
use std::path::{Path, PathBuf};

use ringfence_tests::{Output, Project, Who, each_user};

use crate::bundles::{MIRROR, SMALL};

/// A machine with one sealed run in which something was allowed and something refused.
fn recorded(who: Who) -> Project {
    let project = Project::new(who);
    project.manifest(MIRROR);
    project.python();
    project.lock();
    project.trust();
    let cases = project.agent(
        "m = Mcp('mirror')\nm.call('raw', 'raw')\nm.call('not', 'secret_tool')\ntry_connect('host', 'refused.example.com:443')",
    );
    cases.answered("raw");
    project.ringfence(&["audit", "verify"]).ok().done();
    project
}

fn record(project: &Project) -> PathBuf {
    project.last_run().join("events.jsonl")
}

fn machine(project: &Project) -> PathBuf {
    project.state().join("log/machine.jsonl")
}

/// Verifies with other bytes in a file, then puts the old ones back and verifies again.
fn verify_with(project: &Project, path: &Path, bytes: Option<&[u8]>) -> Output {
    let old = fs::read(path).expect("the file is there");
    match bytes {
        Some(bytes) => fs::write(path, bytes).expect("our own file"),
        None => fs::remove_file(path).expect("our own file"),
    }
    let output = project.ringfence(&["audit", "verify"]);
    fs::write(path, old).expect("our own file");
    project.who().own(path);
    project.ringfence(&["audit", "verify"]).ok().done();
    output
}

fn found(output: &Output, what: &str, path: &Path, line: Option<usize>) {
    let all = format!("{}{}", output.stdout, output.stderr);
    assert_eq!(output.status, 1, "{what} must be found: {all}");
    let name = path.file_name().expect("a file").to_string_lossy();
    assert!(all.contains(&*name), "{what}: the file is not named: {all}");
    if let Some(line) = line {
        let named = [format!("{name}:{line}"), format!("line {line}")];
        assert!(named.iter().any(|n| all.contains(n)), "{what}: line {line} is not named: {all}");
    }
}

#[test]
fn every_changed_byte_is_found_and_its_line_named() {
    each_user(|who| {
        let project = recorded(who);
        for path in [record(&project), machine(&project)] {
            let whole = fs::read(&path).expect("the record");
            let text = String::from_utf8(whole.clone()).expect("the record is text");
            let starts: Vec<usize> = text.match_indices('\n').map(|(at, _)| at + 1).collect();
            let lines = starts.len();
            for line in 1..=lines {
                let begin = if line == 1 { 0 } else { starts[line - 2] };
                let length = starts[line - 1] - begin;
                // The first byte, one in the middle, the last before the line's end.
                for at in [begin, begin + length / 2, begin + length - 2] {
                    let mut changed = whole.clone();
                    changed[at] ^= 1;
                    found(
                        &verify_with(&project, &path, Some(&changed)),
                        "a flipped bit",
                        &path,
                        Some(line),
                    );
                }
            }
        }
    });
}

#[test]
fn a_word_changed_for_another_is_found() {
    each_user(|who| {
        let project = recorded(who);
        let path = record(&project);
        let text = fs::read_to_string(&path).expect("the record");
        let line =
            text.lines().position(|l| l.contains("\"refused\"")).expect("there is a refusal") + 1;
        let changed = text.replacen("\"refused\"", "\"allowed\"", 1);
        found(
            &verify_with(&project, &path, Some(changed.as_bytes())),
            "refused made allowed",
            &path,
            Some(line),
        );
        // The same words, only spelled differently: still not the bytes that were signed.
        let spaced = text.replacen("\":", "\": ", 1);
        found(&verify_with(&project, &path, Some(spaced.as_bytes())), "a space", &path, Some(1));
    });
}

#[test]
fn lines_cut_moved_doubled_or_added_are_found() {
    each_user(|who| {
        let project = recorded(who);
        let path = record(&project);
        let text = fs::read_to_string(&path).expect("the record");
        let lines: Vec<&str> = text.lines().collect();
        let join = |some: Vec<&str>| format!("{}\n", some.join("\n"));
        let middle = lines.len() / 2;
        let mut cut = lines.clone();
        cut.remove(middle);
        let mut swapped = lines.clone();
        swapped.swap(middle, middle - 1);
        let mut doubled = lines.clone();
        doubled.insert(middle, lines[middle]);
        let mut headless = lines.clone();
        headless.remove(0);
        for (what, now) in [
            ("a line cut in the middle", cut),
            ("two lines swapped", swapped),
            ("a line twice", doubled),
            ("the first line cut", headless),
        ] {
            found(&verify_with(&project, &path, Some(join(now).as_bytes())), what, &path, None);
        }
        for keep in 0..lines.len() {
            let now = if keep == 0 { String::new() } else { join(lines[..keep].to_vec()) };
            found(
                &verify_with(&project, &path, Some(now.as_bytes())),
                "lines cut at the end",
                &path,
                None,
            );
        }
        let added = format!("{text}{}\n", lines[lines.len() - 1]);
        found(&verify_with(&project, &path, Some(added.as_bytes())), "a line added", &path, None);
        let torn = &text.as_bytes()[..text.len() - 5];
        found(
            &verify_with(&project, &path, Some(torn)),
            "a torn last line",
            &path,
            Some(lines.len()),
        );
        let blank = text.replacen('\n', "\n\n", 1);
        found(&verify_with(&project, &path, Some(blank.as_bytes())), "an empty line", &path, None);
        let dos = text.replace('\n', "\r\n");
        found(
            &verify_with(&project, &path, Some(dos.as_bytes())),
            "other line ends",
            &path,
            Some(1),
        );
    });
}

#[test]
fn a_deleted_run_or_log_is_found() {
    each_user(|who| {
        let project = recorded(who);
        let run = project.last_run();
        let id = run.file_name().expect("an id").to_string_lossy().into_owned();
        let gone = verify_with(&project, &record(&project), None);
        assert_eq!(gone.status, 1, "{}{}", gone.stdout, gone.stderr);
        assert!(format!("{}{}", gone.stdout, gone.stderr).contains(&id), "the run is not named");
        let log = verify_with(&project, &machine(&project), None);
        assert_eq!(log.status, 1, "{}{}", log.stdout, log.stderr);
        let hidden = project.root().join("hidden");
        fs::rename(&run, &hidden).expect("our own folder");
        let output = project.ringfence(&["audit", "verify"]);
        assert_eq!(output.status, 1, "{}{}", output.stdout, output.stderr);
        fs::rename(&hidden, &run).expect("our own folder");
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}

#[test]
fn a_record_signed_by_another_key_is_found() {
    each_user(|who| {
        let project = recorded(who);
        let other = recorded(who);
        let path = record(&project);
        // A whole, well-formed record of another machine, in the place of ours.
        let foreign = fs::read(record(&other)).expect("the record");
        found(
            &verify_with(&project, &path, Some(&foreign)),
            "another machine's record",
            &path,
            None,
        );
        let log = machine(&project);
        let foreign = fs::read(machine(&other)).expect("the log");
        let output = verify_with(&project, &log, Some(&foreign));
        assert_eq!(output.status, 1, "{}{}", output.stdout, output.stderr);
    });
}

#[test]
fn two_runs_at_once_never_fork_the_chain() {
    each_user(|who| {
        let project = Project::ready(who, SMALL);
        let running: Vec<_> = (0..6).map(|_| project.start(&["run", "--", "true"])).collect();
        for run in running {
            run.finish().ok().done();
        }
        assert_eq!(project.runs().len(), 6);
        project.ringfence(&["audit", "verify"]).ok().done();
        let log = fs::read_to_string(machine(&project)).expect("the log");
        assert_eq!(log.matches("run_sealed").count(), 6, "{log}");
    });
}

#[test]
fn a_full_disk_stops_the_call() {
    each_user(|who| {
        let mut project = Project::new(who);
        project.manifest(MIRROR);
        project.python();
        project.lock();
        project.trust();
        // Says each call that went through: it may be killed in the middle of the next one.
        let script = "m = Mcp('mirror')\n\
                      for n in range(3000):\n\
                      \x20   status, text = m.post({'jsonrpc': '2.0', 'id': n, 'method': 'tools/call', 'params': {'name': 'raw', 'arguments': {'n': n}}})\n\
                      \x20   if '\"result\"' not in text or '\"isError\":true' in text: break\n\
                      \x20   say('called', value=n + 1)\n";
        project.file("case.py", format!("from agent import *\n{script}"));
        // The runs' folder is a file system of 128 KiB, in a mount namespace that ends with the run.
        let runs = project.state().join("runs");
        fs::create_dir_all(&runs).expect("our own folder");
        who.own(&runs);
        let mount = format!(
            "mount -t tmpfs -o size=128k,mode=0700,uid={uid},gid={uid} tmpfs '{}' && exec \"$@\"",
            runs.display(),
            // In a user namespace of its own the user is its root.
            uid = if Who::suite_is_root() { who.uid() } else { 0 }
        );
        let mut words: Vec<String> = vec!["unshare".into()];
        if !Who::suite_is_root() {
            words.extend(["--user".into(), "--map-root-user".into()]);
        }
        words.extend(
            ["--mount", "--propagation", "private", "sh", "-c", &mount, "sh"].map(String::from),
        );
        project.inside(words);
        let output = project.run(&["/usr/bin/python3", "case.py"]);
        let words = format!("{}{}", output.stdout, output.stderr);
        let cases = Project::cases(output);
        let called = cases.get("called")["value"].as_i64().expect("a count");
        assert!(called > 0, "control: with room the calls go through: {words}");
        assert!(called < 3000, "calls went on without evidence");
        assert_eq!(cases.output.status, 255, "a run whose record failed does not end well");
        assert!(words.contains("events.jsonl") && words.contains("No space left"), "{words}");
    });
}

#[test]
fn a_cut_is_not_hidden_by_what_comes_after() {
    each_user(|who| {
        let project = recorded(who);
        let (log, copy) = (machine(&project), machine(&project).with_file_name("machine.head"));
        let (good, head) = (fs::read(&log).expect("the log"), fs::read(&copy).expect("the copy"));
        project.run(&["true"]).ok().done();
        project.ringfence(&["audit", "verify"]).ok().done();

        // Without its last group, without everything, without everything and with an old copy gone.
        let ends: Vec<_> = good.iter().enumerate().filter(|(_, b)| **b == b'\n').collect();
        let cut = &good[..=ends[ends.len() - 3].0];
        let later = (fs::read(&log).expect("the log"), fs::read(&copy).expect("the copy"));
        for (what, left, head) in [
            ("cut", cut, Some(&head)),
            ("emptied", &b""[..], Some(&head)),
            ("cut, its copy deleted", cut, None),
        ] {
            fs::write(&log, left).expect("our own file");
            match head {
                Some(head) => fs::write(&copy, head).expect("our own file"),
                None => fs::remove_file(&copy).expect("our own file"),
            }
            let run = project.run(&["true"]);
            assert_eq!(run.status, 255, "{what}: {}", run.stderr);
            assert!(run.stderr.contains("audit verify"), "{what}: {}", run.stderr);
            let verify = project.ringfence(&["audit", "verify"]);
            assert_eq!(verify.status, 1, "{what}: {}{}", verify.stdout, verify.stderr);
        }
        fs::write(&log, later.0).expect("our own file");
        fs::write(&copy, later.1).expect("our own file");
        project.run(&["true"]).ok().done();
        project.ringfence(&["audit", "verify"]).ok().done();
    });
}
