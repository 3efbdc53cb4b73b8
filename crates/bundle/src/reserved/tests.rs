use super::reserved_variable;

#[test]
fn loader_interpreter_and_proxy_variables_are_reserved_in_any_case() {
    for name in [
        "LD_PRELOAD",
        "LD_LIBRARY_PATH",
        "LD_AUDIT",
        "DYLD_INSERT_LIBRARIES",
        "NODE_OPTIONS",
        "BASH_ENV",
        "ENV",
        "PYTHONPATH",
        "PYTHONSTARTUP",
        "PYTHONHOME",
        "PYTHONBREAKPOINT",
        "GIT_SSH_COMMAND",
        "GIT_CONFIG_COUNT",
        "http_proxy",
        "HTTPS_PROXY",
        "all_proxy",
        "No_Proxy",
        "npm_config_https_proxy",
        "PATH",
        "HOME",
        "RINGFENCE_HOME",
        "RINGFENCE_MCP_A_URL",
        "PERL5OPT",
        "RUBYOPT",
        "JAVA_TOOL_OPTIONS",
        "_JAVA_OPTIONS",
        "GLIBC_TUNABLES",
        "LUA_INIT_5_4",
        "BASH_FUNC_ls",
        "SSH_AUTH_SOCK",
        "DOCKER_HOST",
        "path",
        "ld_preload",
    ] {
        assert!(reserved_variable(name).is_some(), "{name}");
    }
}

#[test]
fn ordinary_variables_are_not() {
    for name in [
        "GROQ_API_KEY",
        "ANTHROPIC_API_KEY",
        "GITHUB_TOKEN",
        "LANG",
        "TERM",
        "MY_PATH",
        "HOMEPAGE",
        "PYTHONUNBUFFERED",
        "PROXY_TOKEN",
        "ENVIRONMENT",
        "LDAP_URL",
        "GITLAB_TOKEN",
        "NODE_ENV",
    ] {
        assert_eq!(reserved_variable(name), None, "{name}");
    }
}
