//! Row 11: an approved command whose file was swapped, or whose PATH lookup now finds another:
//! refused, and shown.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;

use ringfence_tests::{Project, Who, each_user};

const MIRROR: &str = include_str!("../agents/servers.py");
const CALL: &str = "Mcp('mirror').call('raw', 'raw')";

/// A machine's folder of programs, which the sandbox may read.
struct Machine {
    project: Project,
    tools: PathBuf,
}

impl Machine {
    /// A trusted bundle whose server `mirror` is started by this command; `tools` is first on PATH.
    fn new(who: Who, command: &str, fill: impl Fn(&Self)) -> Self {
        let mut project = Project::new(who);
        let tools = project.root().join("tools");
        let more = project.root().join("before");
        let path = format!("{}:{}:/usr/bin:/bin", more.display(), tools.display());
        project.env("PATH", &path);
        let machine = Self { project, tools };
        for folder in ["tools", "before"] {
            let path = machine.project.root().join(folder);
            std::fs::create_dir(&path).expect("our own folder");
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("ours");
            who.own(&path);
        }
        machine.project.python();
        fill(&machine);
        let (tools, more) = (machine.tools.display(), more.display());
        let command = command.replace("TOOLS", &tools.to_string());
        machine.project.manifest(&format!(
            "version = 1\n\n[agent]\nname = \"case\"\n\n[servers.mirror]\ntype = \"stdio\"\ncommand = \"{command}\"\nargs = [\"mirror.py\"]\ntools = [\"raw\"]\n\n[policy.filesystem]\nread = [\"**\", \"{tools}/**\", \"{more}/**\"]\n"
        ));
        machine.project.lock();
        machine.project.trust();
        machine.works();
        machine
    }

    /// A program of the machine that runs its arguments with Python.
    fn program(&self, path: &str, text: &str) -> PathBuf {
        let file = self.project.root().join(path);
        std::fs::write(&file, text).expect("our own file");
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).expect("our own");
        self.project.who().own(&file);
        file
    }

    /// The control: the server starts and answers.
    fn works(&self) {
        self.project.agent(CALL).answered("raw");
    }

    /// Refused before anything starts; the message names server, old and new.
    fn refused(&self, words: &[&str]) {
        self.project.ringfence(&["run", "--plan"]).expect(3).says(words).done();
        let run = self.project.run(&["/bin/sh", "-c", "touch ran"]).expect(3).says(words);
        run.says(&["ringfence trust"]).done();
        let preview = self.project.ringfence(&["trust", "--preview"]).ok();
        for word in ["CHANGED since it was trusted"].iter().chain(words) {
            assert!(preview.stdout.contains(word), "{word} is not shown:\n{}", preview.stdout);
        }
        let list = self.project.ringfence(&["trust", "--list"]).ok();
        assert!(list.stdout.starts_with("changed"), "{}", list.stdout);
    }
}

const SCRIPT: &str = "#!/bin/sh\nexec /usr/bin/python3 \"$@\"\n";

#[test]
fn a_file_that_was_swapped_starts_nothing() {
    each_user(|who| {
        let machine = Machine::new(who, "runner", |it| {
            it.program("tools/runner", SCRIPT);
        });
        machine.program("tools/runner", &SCRIPT.replace("exec", "touch /tmp/x; exec"));
        let file = machine.tools.join("runner").display().to_string();
        machine.refused(&["server `mirror`: trusted ", &file, ", now "]);
        machine.program("tools/runner", SCRIPT);
        machine.works();
        // The same bytes in another inode, with an old date: only bytes count.
        std::fs::rename(machine.tools.join("runner"), machine.tools.join("x")).expect("ours");
        machine.program("tools/runner", SCRIPT);
        machine.works();
    });
}

#[test]
fn another_that_path_finds_first_starts_nothing() {
    each_user(|who| {
        let machine = Machine::new(who, "runner", |it| {
            it.program("tools/runner", SCRIPT);
        });
        // Even with the same bytes: from there, it is somebody else's to change.
        let other = machine.program("before/runner", SCRIPT);
        machine.refused(&["server `mirror`", &other.display().to_string()]);
        std::fs::remove_file(&other).expect("our own file");
        machine.works();
        // One that may not be executed is passed over.
        machine.program("before/runner", SCRIPT);
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o644)).expect("our own");
        machine.works();
    });
}

#[test]
fn an_interpreter_that_was_swapped_starts_nothing() {
    each_user(|who| {
        let machine = Machine::new(who, "runner", |it| {
            let shell = it.tools.join("shell");
            std::fs::copy("/bin/sh", &shell).expect("a shell");
            it.project.who().own(&shell);
            it.program("tools/runner", &SCRIPT.replace("/bin/sh", &shell.display().to_string()));
        });
        let shell = machine.tools.join("shell");
        std::fs::remove_file(&shell).expect("our own file");
        std::fs::copy("/usr/bin/env", &shell).expect("another program");
        who.own(&shell);
        machine.refused(&["server `mirror`", &shell.display().to_string()]);
        std::fs::copy("/bin/sh", &shell).expect("the same again");
        machine.works();
    });
}

#[test]
fn a_symlink_that_leads_elsewhere_starts_nothing() {
    each_user(|who| {
        let machine = Machine::new(who, "TOOLS/current", |it| {
            let one = it.program("tools/one", SCRIPT);
            it.program("tools/two", SCRIPT);
            symlink(one, it.tools.join("current")).expect("a link");
        });
        let link = machine.tools.join("current");
        std::fs::remove_file(&link).expect("our own link");
        symlink(machine.tools.join("two"), &link).expect("a link");
        machine.refused(&["server `mirror`", &machine.tools.join("two").display().to_string()]);
        std::fs::remove_file(&link).expect("our own link");
        symlink(machine.tools.join("one"), &link).expect("a link");
        machine.works();
    });
}

#[test]
fn a_script_of_the_project_that_changed_starts_nothing() {
    each_user(|who| {
        let machine = Machine::new(who, "/usr/bin/python3", |_| {});
        machine.project.file("mirror.py", format!("import os\n{MIRROR}"));
        let run = machine.project.run(&["true"]).expect(3);
        run.says(&["program mirror.py", "ringfence lock"]).done();
        let shown = machine.project.ringfence(&["lock", "--check"]).expect(1);
        assert!(shown.stdout.contains("mirror.py:1: changed"), "{}", shown.stdout);
        machine.project.file("mirror.py", MIRROR);
        machine.works();
    });
}

#[test]
fn the_agents_own_program_is_held_to_what_was_shown() {
    each_user(|who| {
        let mut project = Project::new(who);
        let tools = project.root().join("tools");
        project.env("PATH", &format!("{}:/usr/bin:/bin", tools.display()));
        std::fs::create_dir(&tools).expect("our own folder");
        std::fs::set_permissions(&tools, std::fs::Permissions::from_mode(0o755)).expect("our own");
        let machine = Machine { project, tools };
        machine.program("tools/agent", "#!/bin/sh\necho first\n");
        let manifest = format!(
            "version = 1\n[sandbox]\ncommand = [\"agent\"]\n[policy.filesystem]\nread = [\"**\", \"{}/**\"]\n",
            machine.tools.display()
        );
        machine.project.manifest(&manifest);
        machine.project.lock();
        machine.project.trust();
        let run = machine.project.ringfence(&["run"]).ok();
        assert!(run.stdout.contains("first"), "{}", run.stdout);
        machine.program("tools/agent", "#!/bin/sh\necho second\n");
        let run = machine.project.ringfence(&["run"]).expect(3).says(&["the agent: trusted "]);
        assert!(!run.stdout.contains("second"), "{}", run.stdout);
        // What a person types is theirs.
        machine.project.run(&["true"]).ok().done();
        machine.project.trust();
        let run = machine.project.ringfence(&["run"]).ok();
        assert!(run.stdout.contains("second"), "control: {}", run.stdout);
    });
}

#[test]
fn a_program_swapped_after_the_plan_and_before_the_start_is_not_started() {
    each_user(|who| {
        let machine = Machine::new(who, "runner", |it| {
            it.program("tools/runner", SCRIPT);
        });
        // The agent is there, and waits; the server is started by its first call.
        let wait = "import sys, time, os\nprint('{\"case\": \"there\"}', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.02)\n";
        let project = &machine.project;
        project.file("case.py", format!("from agent import *\n{wait}{CALL}\n"));
        let call = |swap: bool| {
            let _ = std::fs::remove_file(project.path().join("go"));
            let runs = project.runs().len();
            let started = project.start(&["run", "--", "/usr/bin/python3", "-B", "case.py"]);
            while project.runs().len() == runs || !project.events_text().contains("sandbox_started")
            {
                std::thread::yield_now();
            }
            if swap {
                machine.program("tools/runner", &SCRIPT.replace("exec", "touch swapped; exec"));
            }
            project.file("go", "");
            Project::cases(started.finish())
        };
        call(false).answered("raw");
        let cases = call(true);
        cases.not_answered("raw");
        assert!(
            cases.body("raw").contains("trusted")
                || project.events_text().contains("program(s) are not those"),
            "{:?}\n{}",
            cases.get("raw"),
            project.events_text()
        );
    });
}
