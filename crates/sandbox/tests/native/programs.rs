//! Programs that must run.

use crate::Test;
use crate::support::{Case, User};

pub const TESTS: &[Test] = &[("a_shell_runs", a_shell_runs)];

fn a_shell_runs(user: User) {
    let mut case = Case::new(user);
    case.wish.listen = vec![41001];
    case.wish.probe = true;
    let ran = case.sh("echo hello; exit 7");
    assert_eq!(ran.ends(7), "hello\n");
}
