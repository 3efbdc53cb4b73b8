//! Bad input, below the manifest: what files are, what they hold, and who else writes them meanwhile.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ringfence_tests::{Project, each_user};

use crate::bundles::{MIRROR, SMALL};

const SKILL: &str = "version = 1\n\n[agent]\nname = \"case\"\n\n[skills.s]\npath = \"./skills/s\"\n\n[instructions.i]\npath = \"./instructions/i.md\"\n";

fn skill(project: &Project) {
    project.manifest(SKILL);
    project.file(".ringfence/skills/s/SKILL.md", "# s ✔️\n");
    project.file(".ringfence/instructions/i.md", "Be kind.\n");
}

/// Replaces a file by what a shell command makes there.
fn replace(project: &Project, path: &str, make: &str) {
    let place = project.root().join(path).display().to_string();
    project.shell(&["sh", "-c", &format!("rm -rf '{place}'; {make} '{place}'")]).ok().done();
}

#[test]
fn a_pipe_or_a_link_where_any_file_should_be() {
    each_user(|who| {
        let manifest =
            format!("{MIRROR}\n{}", SKILL.split_once("\n[skills").map_or("", |(_, it)| it));
        let manifest = manifest.replace("\n.s]", "\n[skills.s]");
        for (path, said) in [
            ("project/.ringfence/ringfence.toml", "ringfence.toml"),
            ("project/.ringfence/ringfence.local.toml", "ringfence.local.toml"),
            ("project/.ringfence/ringfence.lock", "ringfence.lock"),
            ("project/.ringfence/skills/s/SKILL.md", "SKILL.md"),
            ("project/.ringfence/skills/s", "skills/s"),
            ("project/.ringfence/instructions/i.md", "i.md"),
            ("state/trust.json", "trust.json"),
            ("state/machine.toml", "machine.toml"),
        ] {
            let project = Project::new(who);
            skill(&project);
            project.manifest(&manifest);
            project.python();
            project.lock();
            project.trust();
            project.run(&["true"]).ok().done();
            for make in ["mkfifo", "ln -s /dev/zero", "ln -s /etc/passwd"] {
                replace(&project, path, make);
                let run = project.run(&["true"]);
                assert!([1, 3].contains(&run.status), "{make} {path}: {run:?}");
                assert!(run.stderr.contains(said), "{make} {path}: {}", run.stderr);
                let check = project.ringfence(&["lock", "--check"]);
                let is_bundle = path.starts_with("project");
                assert_eq!(check.status == 0, !is_bundle, "{make} {path}: {check:?}");
            }
        }
        // The folder itself.
        let project = Project::ready(who, SMALL);
        project.run(&["true"]).ok().done();
        project.shell(&["mv", ".ringfence", "real"]).ok().done();
        project.shell(&["ln", "-s", "real", ".ringfence"]).ok().done();
        for words in [&["lock"][..], &["run", "--", "true"], &["trust", "--preview"]] {
            let output = project.ringfence(words);
            assert!([1, 3].contains(&output.status), "{output:?}");
            assert!(output.stderr.contains("symbolic link"), "{}", output.stderr);
        }
    });
}

#[test]
fn line_ends_of_windows_are_fine_and_a_byte_order_mark_is_named() {
    each_user(|who| {
        let project = Project::new(who);
        let crlf = MIRROR.replace('\n', "\r\n");
        project.manifest(&crlf);
        project.python();
        project.lock();
        project.trust();
        project.run(&["true"]).ok().done();
        project.manifest(&crlf.replace("command =", "comand ="));
        project.ringfence(&["validate"]).expect(1).says(&["ringfence.toml:8:1", "comand"]).done();
        project.manifest(&format!("\u{feff}{MIRROR}"));
        project
            .ringfence(&["validate"])
            .expect(1)
            .says(&["byte-order-mark", "ringfence.toml:1:1"])
            .done();
        project.manifest(MIRROR);
        project.local("\u{feff}[limits]\n");
        project
            .ringfence(&["validate"])
            .expect(1)
            .says(&["byte-order-mark", "ringfence.local.toml:1:1"])
            .done();
    });
}

#[test]
fn a_million_lines_take_bounded_time_and_memory() {
    each_user(|who| {
        let project = Project::new(who);
        let keys: String = (0..230_000).map(|nth| format!("k{nth:06} = 1\n")).collect();
        for (text, status) in [
            (format!("{SMALL}{}", "#\n".repeat(1_000_000)), 0),
            ("a = 1\n".repeat(1_000_000), 1),
            (format!("{SMALL}{keys}"), 1),
        ] {
            project.manifest(&text);
            let program = project.program().display().to_string();
            let path = project.path().display().to_string();
            let start = Instant::now();
            let limit = ["prlimit", "--as=1073741824", "--", &program, "-C", &path, "validate"];
            let output = project.shell(&limit).expect(status);
            assert!(start.elapsed() < Duration::from_secs(45), "{:?}", start.elapsed());
            assert!(output.stderr.len() < 1 << 20, "{} bytes are said", output.stderr.len());
        }
    });
}

#[test]
fn a_file_that_changes_while_it_is_read_is_refused() {
    each_user(|who| {
        let project = Project::new(who);
        skill(&project);
        project.lock();
        let big = project.file(".ringfence/skills/s/data.bin", vec![0; 60 << 20]);
        project.lock();
        let done = AtomicBool::new(false);
        let check = std::thread::scope(|scope| {
            scope.spawn(|| {
                use std::os::unix::fs::FileExt as _;
                let file =
                    std::fs::OpenOptions::new().write(true).open(&big).expect("our own file");
                while !done.load(Ordering::Relaxed) {
                    // The bytes that are there already: only that somebody writes is seen.
                    file.write_all_at(&[0], 7).expect("our own file");
                }
            });
            let check = project.ringfence(&["lock"]);
            done.store(true, Ordering::Relaxed);
            check
        });
        check.expect(1).says(&["data.bin", "changed while it was read", "unpinnable"]).done();
        project.ringfence(&["lock", "--check"]).ok().done();
    });
}

#[test]
fn hidden_text_is_refused_before_it_can_be_locked() {
    each_user(|who| {
        let project = Project::new(who);
        skill(&project);
        project.lock();
        project.trust();
        project.run(&["true"]).ok().done();
        let skill = ".ringfence/skills/s/SKILL.md";
        for (hidden, said) in [
            ("ab\u{e0049}\u{e0047}", "ab<U+E0049><U+E0047>"),
            ("ab\u{202e}cd", "<U+202E>cd"),
            ("ab\u{2067}cd", "<U+2067>"),
            ("ab\u{200b}cd", "ab<U+200B>cd"),
            ("ab\u{200d}cd", "<U+200D>"),
            ("😀\u{e0121}\u{e0155}", "<U+E0121>"),
        ] {
            project.file(skill, format!("# s\n\n{hidden}\n"));
            for words in [
                &["lock"][..],
                &["lock", "--check"],
                &["trust", "--preview"],
                &["run", "--", "true"],
            ] {
                let output = project.ringfence(words);
                assert!([1, 3].contains(&output.status), "{output:?}");
                let column = if hidden.starts_with("ab") { 3 } else { 2 };
                let place = format!(".ringfence/skills/s/SKILL.md:3:{column}");
                for word in ["hidden-text", &place, said] {
                    assert!(output.stderr.contains(word), "no {word}: {}", output.stderr);
                }
                let raw = output.stderr.chars().find(|c| matches!(c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{e0000}'..));
                assert_eq!(raw, None, "it is shown escaped");
            }
        }
        let instruction = ".ringfence/instructions/i.md";
        project.file(skill, "# s\n\n✔️ ⚠️ 👩‍💻 می‌خواهم क्‍ष\n");
        project.file(instruction, "a\u{2060}b");
        project.ringfence(&["lock"]).expect(1).says(&["hidden-text", "i.md:1:2"]).done();
        project.file(instruction, b"caf\xe9");
        project.ringfence(&["lock"]).expect(1).says(&["hidden-text", "not UTF-8"]).done();
        project.file(instruction, "café");
        project.lock();
        project.trust();
        project.run(&["true"]).ok().done();
    });
}

#[test]
fn names_that_can_be_taken_for_others() {
    each_user(|who| {
        let project = Project::new(who);
        let server = |name: &str| {
            format!("{SMALL}\n[servers.{name}]\ntype = \"stdio\"\ncommand = \"/bin/true\"\n")
        };
        for name in [
            "\"\u{455}earch\"",
            "\"\u{ff53}earch\"",
            "\"sea\u{200b}rch\"",
            "\"sea\u{202e}rch\"",
            "\"Search\"",
            "\"sea\u{301}rch\"",
            "\"поиск\"",
            "\"検索\"",
            "\"بحث\"",
            "\"a__b\"",
            "\"\"",
            "\"a b\"",
            "\"a/b\"",
        ] {
            project.manifest(&server(name));
            project.ringfence(&["validate"]).expect(1).says(&["ringfence.toml:6"]).done();
            for table in ["skills", "instructions", "workflows"] {
                project.manifest(&format!("{SMALL}\n[{table}.{name}]\npath = \"./x\"\n"));
                project.ringfence(&["validate"]).expect(1).says(&["ringfence.toml:6"]).done();
            }
        }
        project.manifest(&format!("{}{}", server("a-b"), server("a_b").replace(SMALL, "")));
        project
            .ringfence(&["validate"])
            .expect(1)
            .says(&["name-collision", "`a-b` and `a_b`"])
            .done();
        project.manifest(&format!("{}tools = [\"pay\", \"PAY\"]\n", server("a")));
        project
            .ringfence(&["validate"])
            .expect(1)
            .says(&["name-collision", "`pay` and `PAY`"])
            .done();
        project.manifest(&server("search"));
        project.ringfence(&["validate"]).ok().done();
        // Names of files may be in any script, but not two that are one on another file system.
        skill(&project);
        for name in ["日本語.md", "поиск.md", "بحث.md", "é.md", "a b.md"] {
            project.file(&format!(".ringfence/skills/s/{name}"), "x");
        }
        project.lock();
        for (name, said) in
            [("skill.md", "SKILL.md"), ("e\u{301}.md", "é.md"), ("x\u{200b}.md", "\\u{200b}")]
        {
            let path = project.file(&format!(".ringfence/skills/s/{name}"), "x");
            project.ringfence(&["lock"]).expect(1).says(&["unpinnable", said]).done();
            std::fs::remove_file(path).expect("our own file");
        }
        project.ringfence(&["lock", "--check"]).ok().done();
    });
}

#[test]
fn two_that_lock_or_trust_at_once_leave_one_whole_state() {
    each_user(|who| {
        let project = Project::new(who);
        skill(&project);
        project.lock();
        let lock =
            || std::fs::read(project.path().join(".ringfence/ringfence.lock")).expect("a lock");
        let one = lock();
        project.file(".ringfence/skills/s/SKILL.md", "# other\n");
        project.lock();
        let other = lock();
        assert_ne!(one, other);
        for round in 0..12 {
            project.file(
                ".ringfence/skills/s/SKILL.md",
                if round % 2 == 0 { "# s ✔️\n" } else { "# other\n" },
            );
            let both = [project.start(&["lock"]), project.start(&["lock"])];
            both.into_iter().for_each(|started| started.finish().ok().done());
            assert_eq!(lock(), if round % 2 == 0 { one.clone() } else { other.clone() });
        }
        let digest = project.preview();
        for round in 0..8 {
            let yes = || project.start(&["trust", "--yes", "--consented", &digest]);
            let second = if round % 2 == 0 { yes() } else { project.start(&["trust", "--revoke"]) };
            for started in [yes(), second] {
                started.finish().ok().done();
            }
            let list = project.ringfence(&["trust", "--list", "--json"]).ok().json();
            let grants = list["projects"].as_array().expect("grants");
            assert!(grants.len() == 1 || (round % 2 == 1 && grants.is_empty()), "{list}");
        }
        project.ringfence(&["audit", "verify"]).ok().done();
        let left: Vec<_> = project.picture(project.root()).into_keys().collect();
        let temporary = |path: &&std::path::PathBuf| path.to_string_lossy().contains(".new");
        assert_eq!(left.iter().find(temporary), None);
    });
}
