//! A real keychain: a session bus and gnome-keyring of a case's own, in its own home.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use crate::{Project, Who};

/// The bus has no services that it could start: what is not started is not there.
const CONFIGURATION: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:tmpdir=/tmp</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow eavesdrop="true"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// A session bus with a Secret Service on it, unlocked. Ended when dropped.
#[derive(Debug)]
pub struct Keychain {
    bus: Child,
    service: Child,
}

/// A bus knows its users by name only: an ordinary user without one gets one, where the project's
/// commands look.
fn named(project: &mut Project) {
    if project.who() != Who::Ordinary {
        return;
    }
    let known = fs::read_to_string("/etc/passwd").expect("it is there");
    let (uid, home) = (project.who().uid(), project.home());
    let line = format!("case:x:{uid}:{uid}::{}:/bin/sh\n", home.display());
    let file = project.state_file("../passwd", known + &line);
    let mount = format!("mount --bind '{}' /etc/passwd && exec \"$@\"", file.display());
    let words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", &mount, "sh"];
    project.inside(words.map(str::to_owned).to_vec());
}

impl Keychain {
    /// Starts both as the project's user, and tells the project of the bus.
    ///
    /// # Panics
    /// When they do not start.
    #[must_use]
    pub fn start(project: &mut Project) -> Self {
        named(project);
        let configuration = project.state_file("../bus.conf", CONFIGURATION);
        let socket = format!("unix:path={}/bus", project.home().display());
        let mut bus = project
            .command(&[
                "dbus-daemon",
                &format!("--config-file={}", configuration.display()),
                &format!("--address={socket}"),
                "--nofork",
                "--nopidfile",
                "--print-address=1",
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("dbus-daemon: `cargo xtask install` installs it");
        let mut address = String::new();
        BufReader::new(bus.stdout.take().expect("it is piped"))
            .read_line(&mut address)
            .expect("the bus says where it is");
        assert!(address.starts_with("unix:path="), "the bus did not start: {address:?}");
        project.env("DBUS_SESSION_BUS_ADDRESS", address.trim());
        let control = project.home().join("keyring");
        let mut service = project
            .command(&[
                "gnome-keyring-daemon",
                "--foreground",
                "--unlock",
                "--components=secrets",
                &format!("--control-directory={}", control.display()),
            ])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("gnome-keyring-daemon: `cargo xtask install` installs it");
        let password = service.stdin.take().expect("it is piped").write_all(b"throw-away");
        password.expect("it reads its password");
        let new = Self { bus, service };
        let begun = Instant::now();
        while !new.answers(project) {
            assert!(
                begun.elapsed() < Duration::from_secs(60),
                "the Secret Service did not come up"
            );
            std::thread::yield_now();
        }
        new
    }

    /// Whether a Secret Service is on the bus.
    fn answers(&self, project: &Project) -> bool {
        let output = project.shell(&[
            "dbus-send",
            "--session",
            "--print-reply",
            "--dest=org.freedesktop.DBus",
            "/",
            "org.freedesktop.DBus.NameHasOwner",
            "string:org.freedesktop.secrets",
        ]);
        output.stdout.contains("boolean true")
    }

    /// Locks it: what is in it cannot be had any more.
    ///
    /// # Panics
    /// When it does not let itself be locked.
    pub fn lock(&self, project: &Project) {
        project
            .shell(&[
                "dbus-send",
                "--session",
                "--print-reply",
                "--dest=org.freedesktop.secrets",
                "/org/freedesktop/secrets",
                "org.freedesktop.Secret.Service.Lock",
                "array:objpath:/org/freedesktop/secrets/collection/login",
            ])
            .ok()
            .done();
    }

    /// Ends the Secret Service; the bus stays.
    ///
    /// # Panics
    /// When it cannot be ended.
    pub fn end_service(&mut self) {
        let _ = self.service.kill();
        self.service.wait().expect("a child can be waited for");
    }
}

impl Drop for Keychain {
    fn drop(&mut self) {
        for child in [&mut self.service, &mut self.bus] {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Project {
    /// Runs `ringfence` with these arguments and this on its stdin, to its end.
    ///
    /// # Panics
    /// When it cannot be started.
    #[track_caller]
    pub fn ringfence_reading(&self, args: &[&str], stdin: &str) -> crate::Output {
        let file = self.state_file("../stdin", stdin);
        let program = self.program().display().to_string();
        let path = self.path().display().to_string();
        let script = format!("exec \"$@\" < '{}'", file.display());
        let mut words = vec!["sh", "-c", &script, "sh", &program, "-C", &path];
        words.extend(args);
        let output = self.shell(&words);
        fs::remove_file(file).expect("our own file");
        output
    }
}
