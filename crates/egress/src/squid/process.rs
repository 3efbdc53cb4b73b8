//! Finds Squid, lays out its files and starts it.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::OsStr;
use std::fs::{DirBuilder, OpenOptions, Permissions};
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ringfence_policy::Principal;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::sync::watch;
use tokio::time::timeout;

use super::Setup;
use super::follow::remember;
use super::render::{Door, Place, render};
use crate::local::Locals;
use crate::{Error, Token};

/// The versions whose configuration is known.
const KNOWN: std::ops::RangeInclusive<u32> = 5..=6;
/// How long Squid may take until it listens.
const READY: Duration = Duration::from_secs(20);
/// So often a port may be taken by another program between our look and Squid's.
const TRIES: usize = 5;
const INSTALL: &str = "apt-get install squid   # or: engine = \"builtin\"";

/// The last lines that Squid said.
pub(crate) type Tail = Arc<Mutex<VecDeque<String>>>;

/// A Squid that listens.
pub(crate) struct Started {
    pub(crate) child: Child,
    pub(crate) log: pipe::Receiver,
    pub(crate) doors: Vec<Door>,
    pub(crate) pid: u32,
    pub(crate) version: String,
    pub(crate) tail: Tail,
}

fn squid(reason: impl Into<String>) -> Error {
    Error::Squid { reason: reason.into(), next: None }
}

/// Squid and its password checker.
struct Programs {
    squid: PathBuf,
    checker: PathBuf,
    version: String,
}

/// Starts it.
pub(crate) async fn start(
    setup: &Setup<'_>,
    tokens: &BTreeMap<Principal, Token>,
) -> Result<Started, Error> {
    let programs = find(setup.path)?;
    let ids = ids()?;
    let files = Files::make(setup.folder, ids, tokens)?;
    let log = pipe::OpenOptions::new()
        .read_write(true)
        .open_receiver(&files.log)
        .map_err(|error| squid(format!("{}: {error}", files.log.display())))?;
    let own = Locals::of_this_machine()
        .all()
        .map_err(|error| squid(format!("this machine's addresses are not to be had: {error}")))?;
    for _ in 0..TRIES {
        let doors = doors(&setup.principals)?;
        let place = Place {
            doors: &doors,
            checker: &programs.checker,
            passwords: &files.passwords,
            log: &files.log,
            own: &own,
            hosts: None,
        };
        let text =
            render(&setup.ruleset, &place).map_err(|error| Error::Rule(error.to_string()))?;
        files.write(&files.configuration, text.as_bytes())?;
        let mut command = Command::new(&programs.squid);
        command
            .args(["-N", "-n", setup.name])
            .args(["-d", "1", "-f"])
            .arg(&files.configuration)
            .env_clear()
            .env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin")
            .current_dir(setup.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if let Some((uid, gid)) = ids {
            command.uid(uid).gid(gid);
        }
        (setup.prepare)(&mut command);
        let mut child = tokio::process::Command::from(command)
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| squid(format!("{}: {error}", programs.squid.display())))?;
        let (tail, mut ready) = listen(&mut child, doors.iter().map(|door| door.port).collect());
        let state = async {
            let state = ready.wait_for(|state| *state != State::Starting).await;
            state.map(|state| *state).unwrap_or(State::Ended)
        };
        match timeout(READY, state).await.unwrap_or(State::Ended) {
            State::Listens if !settled(&doors, ids, &ready).await => {
                let _ = child.kill().await;
            }
            State::Listens => {
                let pid = child.id().ok_or_else(|| squid(last(&tail)))?;
                let version = programs.version;
                return Ok(Started { child, log, doors, pid, version, tail });
            }
            State::Taken => {
                let _ = child.kill().await;
            }
            State::Starting | State::Ended => {
                let _ = child.kill().await;
                return Err(squid(last(&tail)));
            }
        }
    }
    Err(squid("other programs take every port before it can"))
}

/// How far it has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Starting,
    Listens,
    Taken,
    Ended,
}

/// Squid says that it accepts connections shortly before it listens. True once every port is its own:
/// what listens there is of its user, so that no other user's program is taken for it.
async fn settled(doors: &[Door], ids: Option<(u32, u32)>, state: &watch::Receiver<State>) -> bool {
    let uid = ids.map_or_else(|| rustix::process::geteuid().as_raw(), |(uid, _)| uid);
    let all = async {
        loop {
            if *state.borrow() != State::Listens {
                return false;
            }
            let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap_or_default();
            if doors.iter().all(|door| listens(&table, door.port, uid)) {
                return true;
            }
            // Nothing tells of it.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    timeout(READY, all).await.unwrap_or(false)
}

/// Whether a table of sockets (`proc_net_tcp`, as the kernel documents it) has one of this user that
/// listens on this port of loopback.
fn listens(table: &str, port: u16, uid: u32) -> bool {
    const LISTEN: &str = "0A";
    let local = format!("{:08X}:{port:04X}", u32::from_ne_bytes([127, 0, 0, 1]));
    table.lines().any(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        matches!(fields[..], [_, at, _, LISTEN, _, _, _, owner, ..]
            if at == local && owner.parse() == Ok(uid))
    })
}

/// Reads what it says, to its end.
fn listen(child: &mut Child, mut ports: Vec<u16>) -> (Tail, watch::Receiver<State>) {
    let tail = Tail::default();
    let (say, ready) = watch::channel(State::Starting);
    if let Some(stderr) = child.stderr.take() {
        let tail = Arc::clone(&tail);
        tokio::spawn(async move {
            let mut lines = BufReader::new(stderr).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if line.contains("Accepting HTTP Socket connections at") {
                    ports.retain(|port| !line.contains(&format!("local=127.0.0.1:{port} ")));
                    if ports.is_empty() {
                        say.send_replace(State::Listens);
                    }
                } else if line.contains("annot bind socket") || line.contains("in use") {
                    say.send_replace(State::Taken);
                }
                remember(&tail, &line);
            }
            say.send_if_modified(|state| {
                let starting = *state == State::Starting;
                if starting {
                    *state = State::Ended;
                }
                starting
            });
        });
    }
    (tail, ready)
}

fn last(tail: &Tail) -> String {
    let words = tail.lock().unwrap_or_else(PoisonError::into_inner);
    let told = words.iter().rev().find(|line| line.contains("FATAL")).or_else(|| words.back());
    match told {
        Some(line) => format!("Squid did not start: {line}"),
        None => "Squid did not start, and said nothing".to_owned(),
    }
}

/// A port of loopback for each, as far as one can know.
fn doors(principals: &[Principal]) -> Result<Vec<Door>, Error> {
    let held: Result<Vec<TcpListener>, _> =
        principals.iter().map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0))).collect();
    let ports = held.and_then(|held| {
        held.iter().map(|listener| Ok(listener.local_addr()?.port())).collect::<Result<Vec<_>, _>>()
    });
    let ports = ports.map_err(|error| squid(format!("no port: {error}")))?;
    Ok(principals.iter().cloned().zip(ports).map(|(who, port)| Door { who, port }).collect())
}

/// Where Squid and its checker are, on the path or where distributions have them.
fn find(path: Option<&OsStr>) -> Result<Programs, Error> {
    let usual = ["/usr/sbin", "/usr/local/sbin", "/usr/local/squid/sbin"].map(PathBuf::from);
    let folders =
        path.into_iter().flat_map(std::env::split_paths).filter(|path| path.is_absolute());
    let squid_at = folders
        .chain(usual)
        .map(|folder| folder.join("squid"))
        .find(|file| is_program(file))
        .ok_or_else(|| Error::Squid {
            reason: "there is no `squid` on this machine".to_owned(),
            next: Some(INSTALL),
        })?;
    let shown = squid_at.display();
    let output = Command::new(&squid_at)
        .arg("-v")
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| squid(format!("{shown}: {error}")))?;
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let version =
        version(&text).ok_or_else(|| squid(format!("{shown} does not say its version")))?;
    let major = version.split('.').next().and_then(|major| major.parse().ok());
    if !major.is_some_and(|major| KNOWN.contains(&major)) {
        return Err(Error::Squid {
            reason: format!("{shown} is version {version}, and 5 or 6 is needed"),
            next: Some(INSTALL),
        });
    }
    let checker = helpers(&text)
        .into_iter()
        .map(|folder| folder.join("basic_ncsa_auth"))
        .find(|file| is_program(file))
        .ok_or_else(|| squid("its `basic_ncsa_auth` is not on this machine"))?;
    Ok(Programs { squid: squid_at, checker, version })
}

fn is_program(file: &Path) -> bool {
    file.metadata().is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
}

/// The version in what `squid -v` prints.
fn version(text: &str) -> Option<String> {
    let rest = text.split("Version ").nth(1)?;
    let version: String = rest.chars().take_while(|c| c.is_ascii_digit() || *c == '.').collect();
    (!version.is_empty()).then_some(version)
}

/// Where its helpers may be: where it was built to have them, then where distributions have them.
fn helpers(text: &str) -> Vec<PathBuf> {
    let built = text.split("--libexecdir=").nth(1).and_then(|rest| rest.split(['\'', ' ']).next());
    let usual = ["/usr/lib/squid", "/usr/lib64/squid", "/usr/libexec/squid"];
    built.into_iter().filter(|path| path.starts_with('/')).chain(usual).map(PathBuf::from).collect()
}

/// As whom Squid runs, where we are root: somebody whom nobody else is, or, where our own ids do not
/// reach so far, the distribution's user for it.
fn ids() -> Result<Option<(u32, u32)>, Error> {
    if !rustix::process::geteuid().is_root() {
        return Ok(None);
    }
    let random = getrandom::u32().map_err(|error| Error::Random(error.to_string()))?;
    // Beside those that agents get, and as far from what distributions hand out.
    let own = 0x7001_0000 + (random & 0xffff);
    let mapped = |file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.lines().any(|line| {
            let numbers: Vec<u64> =
                line.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            matches!(numbers[..], [first, _, count]
                if u64::from(own) >= first && u64::from(own) - first < count)
        })
    };
    if mapped("/proc/self/uid_map") && mapped("/proc/self/gid_map") {
        return Ok(Some((own, own)));
    }
    let passwd = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
    let user = ["proxy", "squid"].iter().find_map(|name| {
        let line = passwd.lines().find(|line| line.split(':').next() == Some(name))?;
        let mut fields = line.split(':').skip(2);
        Some((fields.next()?.parse().ok()?, fields.next()?.parse().ok()?))
    });
    user.map(Some).ok_or_else(|| squid("as root it needs the user `proxy` or `squid` to run as"))
}

/// Its files: nobody but us writes them, and nobody but Squid reads them.
struct Files {
    ids: Option<(u32, u32)>,
    configuration: PathBuf,
    passwords: PathBuf,
    log: PathBuf,
}

impl Files {
    fn make(
        folder: &Path,
        ids: Option<(u32, u32)>,
        tokens: &BTreeMap<Principal, Token>,
    ) -> Result<Self, Error> {
        let io = |error: std::io::Error| squid(format!("{}: {error}", folder.display()));
        let odd = |c: char| c.is_whitespace() || c.is_control() || "\"'#\\".contains(c);
        if folder.to_str().is_none_or(|text| text.contains(odd)) {
            let name = folder.display();
            return Err(squid(format!("a path without spaces, quotes and `#` is needed: {name}")));
        }
        DirBuilder::new().mode(0o700).create(folder).map_err(io)?;
        let files = Self {
            ids,
            configuration: folder.join("squid.conf"),
            passwords: folder.join("passwords"),
            log: folder.join("log"),
        };
        if let Some((_, gid)) = ids {
            chown(folder, None, Some(gid)).map_err(io)?;
            std::fs::set_permissions(folder, Permissions::from_mode(0o750)).map_err(io)?;
        }
        let mut lines = String::new();
        for (who, token) in tokens {
            lines.push_str(&format!("{who}:{}\n", hashed(token)?));
        }
        files.write(&files.passwords, lines.as_bytes())?;
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        rustix::fs::mknodat(rustix::fs::CWD, &files.log, rustix::fs::FileType::Fifo, mode, 0)
            .map_err(|error| io(error.into()))?;
        if let Some((uid, gid)) = ids {
            chown(&files.log, Some(uid), Some(gid)).map_err(io)?;
        }
        Ok(files)
    }

    /// Writes a file for Squid alone.
    fn write(&self, path: &Path, bytes: &[u8]) -> Result<(), Error> {
        let io = |error: std::io::Error| squid(format!("{}: {error}", path.display()));
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(true).mode(0o600);
        let mut file = options.open(path).map_err(io)?;
        if let Some((_, gid)) = self.ids {
            chown(path, None, Some(gid)).map_err(io)?;
            file.set_permissions(Permissions::from_mode(0o640)).map_err(io)?;
        }
        file.write_all(bytes).map_err(io)
    }
}

/// A token as the password file has it: SHA-512 crypt, salted. The token is random in all its bits, so
/// that few rounds do.
fn hashed(token: &Token) -> Result<String, Error> {
    const ROUNDS: usize = 1000;
    let mut salt = [0_u8; 8];
    getrandom::fill(&mut salt).map_err(|error| Error::Random(error.to_string()))?;
    let salt: String = salt.iter().map(|byte| format!("{byte:02x}")).collect();
    let failed = || squid("a token cannot be hashed");
    let params = sha_crypt::Sha512Params::new(ROUNDS).map_err(|_| failed())?;
    let hash = sha_crypt::sha512_crypt_b64(token.secret().as_bytes(), salt.as_bytes(), &params);
    Ok(format!("$6$rounds={ROUNDS}${salt}${}", hash.map_err(|_| failed())?))
}

#[cfg(test)]
mod tests {
    use super::{helpers, listens, version};

    #[test]
    fn a_listener_is_known_by_its_port_and_its_user() {
        let one = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let port = one.local_addr().unwrap().port();
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        let me = rustix::process::geteuid().as_raw();
        assert!(listens(&table, port, me));
        assert!(!listens(&table, port, me + 1));
        drop(one);
        let table = std::fs::read_to_string("/proc/self/net/tcp").unwrap();
        assert!(!listens(&table, port, me));
    }

    #[test]
    fn a_version_and_the_helpers_are_read_from_what_squid_says() {
        let text = "Squid Cache: Version 5.7\nService Name: squid\nconfigure options:  \
                    '--prefix=/usr' '--libexecdir=/usr/lib/squid' '--mandir=x'";
        assert_eq!(version(text).as_deref(), Some("5.7"));
        assert_eq!(helpers(text)[0].to_str(), Some("/usr/lib/squid"));
        assert_eq!(version("nothing"), None);
        assert_eq!(helpers("'--libexecdir=${prefix}/x'")[0].to_str(), Some("/usr/lib/squid"));
    }
}
