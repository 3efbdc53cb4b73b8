//! Programs that must run.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use ringfence_sandbox::Rule;

use crate::Test;
use crate::support::{Case, User};

pub const TESTS: &[Test] = &[
    ("a_shell_runs", a_shell_runs),
    ("node_runs", node_runs),
    ("python_runs", python_runs),
    ("git_runs", git_runs),
    ("a_compiler_runs", a_compiler_runs),
    ("a_program_elsewhere_is_brought_in", a_program_elsewhere_is_brought_in),
    ("terminals_can_be_made", terminals_can_be_made),
];

fn a_shell_runs(user: User) {
    let mut case = Case::new(user);
    case.wish.listen = vec![41001];
    case.wish.probe = true;
    let ran = case.run(&["/bin/bash", "-c", "echo hello $((6*7)) | cat; pwd; umask; exit 7"]);
    assert_eq!(ran.ends(7), format!("hello 42\n{}\n0022\n", case.project().display()));
}

fn node_runs(user: User) {
    let mut case = Case::new(user);
    let script = "const fs = require('fs'), cp = require('child_process'), os = require('os');
        fs.writeFileSync('/tmp/x', 'x');
        const child = cp.spawnSync('sh', ['-c', 'echo child']).stdout.toString().trim();
        const worker = new (require('worker_threads').Worker)('require(\"worker_threads\").parentPort.postMessage(7)', { eval: true });
        const net = require('net').createServer(s => s.end('net')).listen(0, '127.0.0.1', function () {
            require('net').connect(this.address().port, '127.0.0.1').on('data', d => {
                console.log(child, os.homedir(), os.cpus().length > 0, d.toString());
                this.close();
            });
        });
        worker.on('message', m => console.log('worker', m));
        fs.watch('/tmp', () => {}).close();";
    let out = case.run(&["/usr/bin/node", "-e", script]).fine();
    let mut lines: Vec<_> = out.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, ["child /home/agent true net", "worker 7"]);
}

fn python_runs(user: User) {
    let mut case = Case::new(user);
    let script = "import ssl, subprocess, threading, tempfile, multiprocessing, asyncio, pwd, os
print(subprocess.run(['echo', 'child'], capture_output=True, text=True).stdout.strip())
t = threading.Thread(target=lambda: print('thread')); t.start(); t.join()
print(len(ssl.create_default_context().get_ca_certs()) > 0)
with multiprocessing.Pool(2) as pool: print(sum(pool.map(abs, [-1, -2])))
async def main(): return 'async'
print(asyncio.run(main()), pwd.getpwuid(os.getuid()).pw_name)";
    let out = case.run(&["/usr/bin/python3", "-c", script]).fine();
    assert_eq!(out, "child\nthread\nTrue\n3\nasync agent\n");
}

fn git_runs(user: User) {
    let mut case = Case::new(user);
    let script = "cd /tmp && git init -q r && cd r && echo a > a && git add a &&
        git -c user.name=a -c user.email=a@a commit -qm one && git log --format=%s && git clone -q . ../c && git -C ../c status --short";
    assert_eq!(case.sh(script).fine(), "one\n");
}

fn a_compiler_runs(user: User) {
    let mut case = Case::new(user);
    case.file("main.c", "#include <stdio.h>\nint main(void) { puts(\"compiled\"); }\n");
    assert_eq!(case.sh("cc -O2 -o /tmp/main main.c && /tmp/main").fine(), "compiled\n");
}

fn a_program_elsewhere_is_brought_in(user: User) {
    let mut case = Case::new(user);
    let folder = case.outside().join("versions/1");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("agent"), "#!/bin/sh\necho $0 $1\n").unwrap();
    fs::set_permissions(folder.join("agent"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(folder.join("other"), "x").unwrap();
    let link = case.outside().join("agent");
    symlink("versions/1/agent", &link).unwrap();
    let out = case.run(&[link.to_str().unwrap(), "word"]).fine();
    assert_eq!(out, format!("{} word\n", link.display()));
    // The file alone: nothing that lies beside it.
    let beside = format!("ls {}", folder.display());
    fs::write(folder.join("agent"), format!("#!/bin/sh\n{beside}\n")).unwrap();
    assert_eq!(case.run(&[link.to_str().unwrap()]).fine(), "agent\n");
}

fn terminals_can_be_made(user: User) {
    let mut case = Case::new(user);
    case.rule("", Rule::Writable);
    let script = "import pty, os
pid, fd = pty.fork()
if pid == 0: os.execv('/bin/sh', ['sh', '-c', 'tty'])
print(os.read(fd, 100).decode().strip())
os.waitpid(pid, 0)";
    assert_eq!(case.run(&["/usr/bin/python3", "-c", script]).fine(), "/dev/pts/0\n");
}
