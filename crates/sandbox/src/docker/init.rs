//! Process 1 of the agent's container.

use std::ffi::{OsStr, OsString};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use std::{fs, io};

use rustix::fs::Access;
use rustix::thread::CapabilitySet;

use super::prepare::is_name;
use super::{DOOR_FILE, INIT_FILE, INIT_PORT, OWN_FILES};
use crate::error::{Error, Result, Step};
use crate::inside::channel::Channel;
use crate::inside::wire::{Blueprint, Order, Reply};
use crate::inside::{self, Agent, Confinement};
use crate::sys;

/// How long the sidecar may take to lead to the supervisor.
const PATIENCE: Duration = Duration::from_secs(20);
/// How long it waits between two tries.
const PAUSE: Duration = Duration::from_millis(2);
/// A line on which the other side has not moved for so long is cut.
const SILENCE: Duration = Duration::from_secs(1);

/// Whether this process was started as process 1 of an agent's container.
#[must_use]
pub fn is_init() -> bool {
    own_files().is_some() && rustix::process::getpid() == rustix::process::Pid::INIT
}

/// What the names of the files for this process begin with, if it was started by such a name.
fn own_files() -> Option<String> {
    let name = std::env::args_os().next()?.into_string().ok()?;
    let own = name.strip_suffix(INIT_FILE)?;
    let mark = own.strip_prefix(OWN_FILES)?;
    let random = !mark.is_empty() && mark.bytes().all(|byte| byte.is_ascii_hexdigit());
    random.then(|| own.to_owned())
}

/// The program's entry as that process: called by `main` before anything else when [`is_init`] says so.
/// Never returns. With it everything in the container ends.
pub fn init_main() -> ! {
    let status = match connect() {
        Ok(channel) => {
            // The supervisor reads the failure; if it is gone, there is nobody to tell.
            if let Err(error) = serve(&channel) {
                let _ = channel.send(&Reply::Failed(error.into()), &[]);
            }
            0
        }
        Err(_) => 1,
    };
    sys::exit_now(status)
}

fn connect() -> io::Result<Channel> {
    let began = Instant::now();
    let own = own_files().ok_or_else(|| io::Error::other("started by another name"))?;
    let door = format!("{own}{DOOR_FILE}");
    let address: IpAddr = loop {
        // Written once the sidecar has an address, as one line.
        if let Some(line) = fs::read_to_string(&door)?.strip_suffix('\n') {
            break line.parse().map_err(io::Error::other)?;
        }
        if began.elapsed() > PATIENCE {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(PAUSE);
    };
    let stream = loop {
        match TcpStream::connect_timeout(&SocketAddr::new(address, INIT_PORT), PATIENCE) {
            Ok(stream) => break stream,
            Err(error) if began.elapsed() > PATIENCE => return Err(error),
            Err(_) => std::thread::sleep(PAUSE),
        }
    };
    stream.set_nodelay(true)?;
    use rustix::net::sockopt;
    sockopt::set_socket_keepalive(&stream, true)?;
    sockopt::set_tcp_keepidle(&stream, SILENCE)?;
    sockopt::set_tcp_keepintvl(&stream, SILENCE)?;
    sockopt::set_tcp_keepcnt(&stream, 1)?;
    Ok(Channel::new(stream.into()))
}

fn serve(channel: &Channel) -> Result<()> {
    inside::shut()?;
    sys::ignore_terminal_stops();
    let Some((Order::Enter(blueprint), _)) = inside::receive(channel)? else { return Ok(()) };
    let mut blueprint = *blueprint;
    check(&blueprint)?;
    // First, so that a path means the same when it is looked at and when it is executed.
    std::env::set_current_dir(Path::new(&blueprint.project.path)).step("go to the project")?;
    blueprint.program = resolve(&blueprint)?;
    let stdio = take_streams()?;
    // The engine's mounts hold what may be written.
    let confinement = Confinement::new(&blueprint.bounds, None, false)?;
    rustix::thread::set_no_new_privs(true).step("forbid new privileges")?;
    let mut agent = Agent::new(blueprint, stdio, confinement);
    channel.send(&Reply::Built, &[]).step("answer")?;
    inside::obey(channel, &mut agent)
}

/// Holds what the engine made against what it was asked for: no flag is believed.
fn check(blueprint: &Blueprint) -> Result<()> {
    for (path, dev, ino) in &blueprint.expected {
        let path = Path::new(path);
        let found = fs::symlink_metadata(path).step(format!("look at {}", path.display()))?;
        if (found.dev(), found.ino()) != (*dev, *ino) {
            return Err(Error::Spec(format!(
                "{}: the engine mounted something else there: it may run on another machine, or the \
                 path was exchanged meanwhile",
                path.display()
            )));
        }
    }
    let sets = rustix::thread::capabilities(None).step("read our capabilities")?;
    if !(sets.effective | sets.permitted | sets.inheritable).is_empty() {
        return Err(Error::Spec("the engine left capabilities to the container".into()));
    }
    for bit in 0..CapabilitySet::all().bits().count_ones().min(64) {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        if matches!(rustix::thread::capability_is_in_bounding_set(one), Ok(true)) {
            return Err(Error::Spec(
                "the engine left capabilities that a program could gain".into(),
            ));
        }
    }
    if rustix::process::geteuid().is_root() || rustix::process::getegid().is_root() {
        return Err(Error::Spec("the engine runs the container as root".into()));
    }
    Ok(())
}

/// The program's path. What a name leads to is the image's, and never what is mounted into it; a path may
/// lead there if the supervisor says so, who has proven what lies there, or was told by a person.
fn resolve(blueprint: &Blueprint) -> Result<OsString> {
    let program = blueprint.program.as_os_str();
    if !is_name(program) {
        let path = Path::new(program);
        if !blueprint.mounted_program && is_mounted(blueprint, path)? {
            return Err(Error::Spec(format!(
                "{} leads to what is mounted from this machine, and was not reviewed there; name it by \
                 its path in the project",
                path.display()
            )));
        }
        return Ok(program.to_owned());
    }
    let path = blueprint.env.iter().rev().find(|(name, _)| name == "PATH");
    let path = path.map(|(_, value)| value.as_os_str()).unwrap_or_default();
    let places = path.as_bytes().split(|byte| *byte == b':').map(OsStr::from_bytes);
    for place in places.filter(|place| !place.is_empty()) {
        let file = PathBuf::from(place).join(program);
        let is_file = fs::metadata(&file).is_ok_and(|found| found.is_file());
        if is_file && rustix::fs::access(&file, Access::EXEC_OK).is_ok() {
            if is_mounted(blueprint, &file)? {
                return Err(Error::Spec(format!(
                    "`{}` is found at {}, which is mounted from this machine and is not the image's",
                    program.display(),
                    file.display()
                )));
            }
            return Ok(file.into_os_string());
        }
    }
    Err(Error::Spec(format!(
        "`{}` is in no folder of the image's PATH ({})",
        program.display(),
        path.display()
    )))
}

/// Whether a file lies in what the engine has mounted from this machine.
fn is_mounted(blueprint: &Blueprint, file: &Path) -> Result<bool> {
    let step = || format!("find the program {}", blueprint.program.display());
    let named = std::path::absolute(Path::new(&blueprint.project.path).join(file)).step(step())?;
    let real = fs::canonicalize(&named).step(step())?;
    for (place, ..) in &blueprint.expected {
        let place = Path::new(place);
        // By either name: the image may have links on the way to it, and what is there may be exchanged.
        let real_place = fs::canonicalize(place).step(step())?;
        if named.starts_with(place) || real.starts_with(place) || real.starts_with(real_place) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The agent's streams. What is left in their place leads nowhere.
fn take_streams() -> Result<[OwnedFd; 3]> {
    let step = "take the standard streams";
    let copy = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 3).step(step);
    let taken = [
        copy(rustix::stdio::stdin())?,
        copy(rustix::stdio::stdout())?,
        copy(rustix::stdio::stderr())?,
    ];
    let null = fs::File::options().read(true).write(true).open("/dev/null").step(step)?;
    rustix::stdio::dup2_stdin(&null).step(step)?;
    rustix::stdio::dup2_stdout(&null).step(step)?;
    rustix::stdio::dup2_stderr(&null).step(step)?;
    Ok(taken)
}
