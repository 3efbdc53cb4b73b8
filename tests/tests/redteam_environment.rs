//! Row 26: loader and interpreter variables. The environment is an allow-list, for the agent and for
//! stdio servers, and a manifest cannot name what would run code.

use ringfence_tests::{Project, TestNet, Wall, each_user, each_wall};

use crate::bundles::{MIRROR, SMALL};

/// Variables that make somebody run something, or say where to go.
const HOSTILE: &[&str] = &[
    "LD_PRELOAD",
    "LD_LIBRARY_PATH",
    "LD_AUDIT",
    "NODE_OPTIONS",
    "NODE_PATH",
    "BASH_ENV",
    "ENV",
    "PROMPT_COMMAND",
    "PYTHONPATH",
    "PYTHONSTARTUP",
    "PYTHONHOME",
    "PYTHONINSPECT",
    "PERL5OPT",
    "PERL5LIB",
    "RUBYOPT",
    "JAVA_TOOL_OPTIONS",
    "GIT_SSH_COMMAND",
    "GIT_CONFIG_GLOBAL",
    "GIT_EXTERNAL_DIFF",
    "GIT_EXEC_PATH",
    "GIT_CONFIG_COUNT",
    "GIT_PROXY_COMMAND",
    "http_proxy",
    "ALL_PROXY",
    "SSL_CERT_FILE",
    "NODE_EXTRA_CA_CERTS",
    "IFS",
    "SHELLOPTS",
    "BASHOPTS",
    "GCONV_PATH",
    "MALLOC_CONF",
    "GLIBC_TUNABLES",
    "RUSTC_WRAPPER",
    "npm_config_registry",
    "SSH_AUTH_SOCK",
    "DOCKER_HOST",
    "AWS_SECRET_ACCESS_KEY",
    "GITHUB_TOKEN",
    "KUBECONFIG",
    "DBUS_SESSION_BUS_ADDRESS",
    "XDG_RUNTIME_DIR",
];

/// Values that hurt nobody but are found anywhere. `ringfence` itself must not be steered by them.
const MARK: &str = "hostile-value-7f3a";

#[test]
fn neither_agent_nor_server_inherits_the_hosts_environment() {
    each_wall(&[26], |who, wall| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        let manifest = MIRROR.replace("[servers.mirror]", "[sandbox]\ncredentials = [\"GIVEN\"]\n\n[servers.mirror]\nenv = { OWN = \"${SERVERS}\" }");
        project.manifest(&manifest);
        project.python();
        project.env("GIVEN", "given-value").env("SERVERS", "servers-value");
        project.lock();
        project.trust();
        if wall == Wall::Lockdown {
            // Nothing unpinned is served there.
            project.lock_tools().done();
            project.trust();
        }
        // Which engine is used is the person's to say, and is said by this variable.
        for name in HOSTILE.iter().filter(|name| !(wall.is_container() && **name == "DOCKER_HOST"))
        {
            project.env(name, MARK);
        }
        let cases = project.agent(
            "say('environment', body=json.dumps(dict(os.environ)))\n\
             m = Mcp('mirror')\n\
             m.call('server', 'environment')\n\
             say('processes', body=' '.join(read(f'/proc/{p}/environ') for p in os.listdir('/proc') if p.isdigit() and os.access(f'/proc/{p}/environ', os.R_OK)))\n",
        );
        let agent = cases.body("environment");
        let server = cases.body("server");
        // Controls: what was named is there, each only where it was named.
        assert!(agent.contains("given-value"), "{agent}");
        // What a server says back is scrubbed of its own secret, by name.
        assert!(server.contains("[redacted:SERVERS]"), "{server}");
        assert!(
            !server.contains("given-value")
                && !agent.contains("servers-value")
                && !server.contains("servers-value")
        );
        for (place, text) in
            [("agent", agent), ("server", server), ("a process", cases.body("processes"))]
        {
            assert!(!text.contains(MARK), "{place} has inherited {text}");
        }
        for name in HOSTILE.iter().filter(|n| !n.to_ascii_lowercase().ends_with("_proxy")) {
            assert!(!agent.contains(&format!("\"{name}\":")), "the agent has {name}: {agent}");
            assert!(!server.contains(&format!("{name}\\\"")), "the server has {name}: {server}");
        }
        let record =
            std::fs::read_to_string(project.last_run().join("events.jsonl")).expect("the record");
        assert!(!record.contains("given-value") && !record.contains("servers-value"));
    });
}

#[test]
fn a_manifest_cannot_name_what_runs_code() {
    each_user(|who| {
        let control = Project::new(who);
        control.manifest(&format!("{SMALL}\n[sandbox]\ncredentials = [\"PLAIN_NAME\"]\n"));
        control.ringfence(&["validate"]).ok().done();
        for name in HOSTILE.iter().take(24).chain(&[
            "PATH",
            "HOME",
            "HTTPS_PROXY",
            "no_proxy",
            "RINGFENCE_HOME",
            "RINGFENCE_MCP_X_URL",
        ]) {
            let project = Project::new(who);
            project.manifest(&format!("{SMALL}\n[sandbox]\ncredentials = [\"{name}\"]\n"));
            let credential = project.ringfence(&["validate"]);
            assert_eq!(
                credential.status, 1,
                "credentials = [{name:?}]: {} {}",
                credential.stdout, credential.stderr
            );
            let env = MIRROR.replace("args =", &format!("env = {{ {name} = \"x\" }}\nargs ="));
            project.manifest(&env);
            let server = project.ringfence(&["validate"]);
            assert_eq!(server.status, 1, "env = {{ {name} }}: {} {}", server.stdout, server.stderr);
        }
    });
}

#[test]
fn an_agent_inherits_three_descriptors_and_no_sockets() {
    each_wall(&[27], |who, wall| {
        let net = TestNet::new(who, &[]);
        let mut project = Project::new(who);
        let _engine = wall.around(&mut project, &net);
        project.manifest(SMALL);
        project.lock();
        project.trust();
        // bash itself would see what it inherited; the listing itself is one more.
        let run = project
            .run(&[
                "/bin/sh",
                "-c",
                "cd /proc/self/fd && for f in *; do [ -e $f ] && echo fd=$f=$(readlink $f); done; true",
            ])
            .ok();
        let more: Vec<&str> = run
            .stdout
            .lines()
            .filter(|l| {
                l.starts_with("fd=")
                    && !["fd=0=", "fd=1=", "fd=2="].iter().any(|p| l.starts_with(p))
            })
            .collect();
        let foreign: Vec<_> = more.iter().filter(|l| !l.contains("/proc/")).collect();
        assert!(run.stdout.contains("fd=1="), "{}", run.stdout);
        assert!(foreign.is_empty(), "inherited: {foreign:?}");
    });
}
