//! Environment variables that steer a loader, an interpreter or the wall itself.

#[cfg(test)]
mod tests;

const LOADER: &str = "it steers the program loader or the C library";
const INTERPRETER: &str = "it makes an interpreter run or load other code";
const SHELL: &str = "it steers a shell";
const COMMAND: &str = "programs run what it holds as a command";
const PLACE: &str = "Ringfence sets it itself";
const PROXY: &str = "it would steer traffic around the proxy";
const SOCKET: &str = "it names a socket of the host";
const GIT: &str = "it makes git run or read something else";
const PACKAGES: &str = "it steers a package manager";

const PREFIXES: [(&str, &str); 18] = [
    ("LD_", LOADER),
    ("DYLD_", LOADER),
    ("MALLOC_", LOADER),
    ("GLIBC_", LOADER),
    ("GIT_", GIT),
    ("RINGFENCE_", PLACE),
    ("PYTHON", INTERPRETER),
    ("BASH_FUNC_", SHELL),
    ("LUA_", INTERPRETER),
    ("DOTNET_", INTERPRETER),
    ("CORECLR_", INTERPRETER),
    ("COR_ENABLE_PROFILING", INTERPRETER),
    ("COR_PROFILER", INTERPRETER),
    ("NPM_CONFIG_", PACKAGES),
    ("PIP_", PACKAGES),
    ("BUN_", INTERPRETER),
    ("XDG_", PLACE),
    ("OPENSSL_", LOADER),
];

/// `PYTHON*` names that change how output looks and nothing else.
const HARMLESS: [&str; 5] = [
    "PYTHONUNBUFFERED",
    "PYTHONDONTWRITEBYTECODE",
    "PYTHONIOENCODING",
    "PYTHONUTF8",
    "PYTHONHASHSEED",
];

const NAMES: [(&str, &str); 85] = [
    ("NODE_OPTIONS", INTERPRETER),
    ("NODE_PATH", INTERPRETER),
    ("NODE_REPL_EXTERNAL_MODULE", INTERPRETER),
    ("NODE_TLS_REJECT_UNAUTHORIZED", INTERPRETER),
    ("PERL5OPT", INTERPRETER),
    ("PERL5LIB", INTERPRETER),
    ("PERLLIB", INTERPRETER),
    ("PERL5DB", INTERPRETER),
    ("RUBYOPT", INTERPRETER),
    ("RUBYLIB", INTERPRETER),
    ("GEM_PATH", INTERPRETER),
    ("GEM_HOME", INTERPRETER),
    ("BUNDLE_GEMFILE", INTERPRETER),
    ("JAVA_TOOL_OPTIONS", INTERPRETER),
    ("_JAVA_OPTIONS", INTERPRETER),
    ("JDK_JAVA_OPTIONS", INTERPRETER),
    ("JAVA_OPTS", INTERPRETER),
    ("CLASSPATH", INTERPRETER),
    ("PHPRC", INTERPRETER),
    ("PHP_INI_SCAN_DIR", INTERPRETER),
    ("R_PROFILE", INTERPRETER),
    ("R_PROFILE_USER", INTERPRETER),
    ("ERL_FLAGS", INTERPRETER),
    ("ERL_AFLAGS", INTERPRETER),
    ("RUSTC_WRAPPER", INTERPRETER),
    ("NODE_USE_ENV_PROXY", PLACE),
    ("ELECTRON_RUN_AS_NODE", INTERPRETER),
    ("JRUBY_OPTS", INTERPRETER),
    ("MAVEN_OPTS", INTERPRETER),
    ("GRADLE_OPTS", INTERPRETER),
    ("ERL_ZFLAGS", INTERPRETER),
    ("ERL_LIBS", INTERPRETER),
    ("R_ENVIRON", INTERPRETER),
    ("R_ENVIRON_USER", INTERPRETER),
    ("R_LIBS", INTERPRETER),
    ("TCLLIBPATH", INTERPRETER),
    ("JULIA_LOAD_PATH", INTERPRETER),
    ("GUILE_LOAD_PATH", INTERPRETER),
    ("RUSTC_WORKSPACE_WRAPPER", INTERPRETER),
    ("CARGO_BUILD_RUSTC_WRAPPER", INTERPRETER),
    ("RUSTFLAGS", INTERPRETER),
    ("GOFLAGS", INTERPRETER),
    ("MAKEFLAGS", COMMAND),
    ("VIMINIT", COMMAND),
    ("EXINIT", COMMAND),
    ("SVN_SSH", COMMAND),
    ("RSYNC_RSH", COMMAND),
    ("HGRCPATH", COMMAND),
    ("BASH_ENV", SHELL),
    ("ENV", SHELL),
    ("SHELLOPTS", SHELL),
    ("BASHOPTS", SHELL),
    ("PS4", SHELL),
    ("PROMPT_COMMAND", SHELL),
    ("IFS", SHELL),
    ("CDPATH", SHELL),
    ("ZDOTDIR", SHELL),
    ("FPATH", SHELL),
    ("PATH", PLACE),
    ("HOME", PLACE),
    ("SHELL", PLACE),
    ("TMPDIR", PLACE),
    ("PWD", PLACE),
    ("PAGER", COMMAND),
    ("MANPAGER", COMMAND),
    ("EDITOR", COMMAND),
    ("VISUAL", COMMAND),
    ("BROWSER", COMMAND),
    ("LESSOPEN", COMMAND),
    ("LESSCLOSE", COMMAND),
    ("SSH_ASKPASS", COMMAND),
    ("SUDO_ASKPASS", COMMAND),
    ("SSH_AUTH_SOCK", SOCKET),
    ("DOCKER_HOST", SOCKET),
    ("DBUS_SESSION_BUS_ADDRESS", SOCKET),
    ("WAYLAND_DISPLAY", SOCKET),
    ("DISPLAY", SOCKET),
    ("GCONV_PATH", LOADER),
    ("LOCPATH", LOADER),
    ("NLSPATH", LOADER),
    ("HOSTALIASES", LOADER),
    ("RES_OPTIONS", LOADER),
    ("LOCALDOMAIN", LOADER),
    ("RESOLV_HOST_CONF", LOADER),
    ("TZDIR", LOADER),
];

/// Why no manifest may set this variable and no sandbox may be given it, or `None` when it may.
/// Names are compared without case: a few of these are read in either.
///
/// ```
/// use ringfence_bundle::reserved_variable;
/// assert!(reserved_variable("LD_PRELOAD").is_some());
/// assert!(reserved_variable("https_proxy").is_some());
/// assert!(reserved_variable("GROQ_API_KEY").is_none());
/// ```
#[must_use]
pub fn reserved_variable(name: &str) -> Option<&'static str> {
    let upper = name.to_ascii_uppercase();
    if HARMLESS.contains(&upper.as_str()) {
        return None;
    }
    if upper.ends_with("_PROXY") {
        return Some(PROXY);
    }
    NAMES
        .iter()
        .find(|(reserved, _)| *reserved == upper)
        .or_else(|| PREFIXES.iter().find(|(prefix, _)| upper.starts_with(prefix)))
        .map(|(_, reason)| *reason)
}
